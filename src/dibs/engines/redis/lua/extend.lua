-- Extend leases that are current, and record progress.
--
-- KEYS[1]  the store
-- ARGV     now (empty: the clock), and for each: id, lease number, span, progress (empty: as it was)
-- returns  now, and for each: 0 if the lease is lost, 1 if it is held, the task's value if it has been asked to stop

local now, ids = clock(ARGV[1]), {}
for place = 2, #ARGV, 4 do ids[#ids + 1] = ARGV[place] end
local runs, answers, ends, changed = fields(base .. 'running', ids), {}, {}, {}
for place, id in ipairs(ids) do
    local first = 2 + 4 * (place - 1)
    local run, number, progress = runs[place], ARGV[first + 1], ARGV[first + 3]
    answers[place] = 0
    local lease = run and string.match(run, '^%d+')
    if lease == number then
        local is_asked = sub(run, #lease + 2, #lease + 2) == '1'
        ends[#ends + 1] = whole(now + tonumber(ARGV[first + 2]))
        ends[#ends + 1] = id
        if progress ~= '' then
            changed[#changed + 1] = id
            changed[#changed + 1] = lease .. '\n' .. (is_asked and '1' or '0') .. progress
        end
        answers[place] = is_asked and (call('HGET', base .. 'tasks', id) or '') or 1
    end
end
if #ends > 0 then
    begin()
    many('ZADD', base .. 'inflight', ends)
    if #changed > 0 then many('HSET', base .. 'running', changed) end
end
return {whole(now), answers}
