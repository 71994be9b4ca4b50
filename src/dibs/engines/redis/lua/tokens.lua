-- Take tokens from buckets, or give them back, by the rules of dibs.core.limits.
--
-- One hash for each bucket. It is forgotten when it is full again, which equals no bucket, and not within the hour: a
-- caller that gives the time may not go by this server's.
--
-- KEYS[1]  the store
-- ARGV     now (empty: the clock), and for each bucket: its name, tokens a second, how many it holds, and how many are
--          wanted (negative: given back)
-- returns  for each how many were taken, and the level that is left, in millionths

local TOKEN, SECOND, HOUR_MS = 1000000, 1000000, 3600000
local now = clock(ARGV[1])
local answers = {}
for place = 2, #ARGV, 4 do
    local key, rate = base .. 'tokens:' .. ARGV[place], tonumber(ARGV[place + 1])
    local full, wanted = tonumber(ARGV[place + 2]) * TOKEN, tonumber(ARGV[place + 3])
    local stored = call('HMGET', key, 'level', 'at')
    local level, at = full, now
    if stored[1] then
        at = tonumber(stored[2])
        local gained = math.max(0, floor((now - at) * rate * TOKEN / SECOND))
        level, at = math.min(full, tonumber(stored[1]) + gained), math.max(now, at)
    end
    local taken = math.min(wanted, math.max(0, floor(level / TOKEN)))
    level = math.min(full, level - taken * TOKEN)
    call('HSET', key, 'level', format('%.0f', level), 'at', format('%.0f', at))
    call('PEXPIRE', key, format('%.0f', math.max(HOUR_MS, math.min(8760 * HOUR_MS, (full - level) / rate / 1000))))
    answers[#answers + 1] = {taken, format('%.0f', level)}
end
return answers
