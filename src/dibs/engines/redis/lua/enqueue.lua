-- Store new tasks that need no decision: no key, no dependency, no limit, no partition, no deadline, no expiry.
--
-- KEYS[1]  the store
-- ARGV     the generation, now (empty: the clock), the lowest and the highest id, the tracks whose events are wanted,
--          a list of members for the index of id blocks, a list of topics, how many runs of like tasks, and for each:
--          track, rank offset, delay, instant (empty: none), span of a lease, facts, how many, and id and arguments of
--          each
-- returns  'done' and now; 'stale'; 'known': one of the ids exists, and nothing was stored

if is_stale(ARGV[1]) then return {'stale'} end
local now, lowest, highest, wants = clock(ARGV[2]), ARGV[3], ARGV[4], wanted(ARGV[5])
local blocks, at = list(6)
local topics
topics, at = list(at)

local last = call('GET', base .. 'highest')
if last and lowest <= last then
    local ids, next_id = {}, at + 1
    for _ = 1, tonumber(ARGV[at]) do
        for place = 0, tonumber(ARGV[next_id + 6]) - 1 do ids[#ids + 1] = ARGV[next_id + 7 + 2 * place] end
        next_id = next_id + 7 + 2 * tonumber(ARGV[next_id + 6])
    end
    local keys = {base .. 'tasks', base .. 'dead'}
    for _, day in ipairs(call('HKEYS', base .. 'days')) do keys[#keys + 1] = base .. 'finished:' .. day end
    for _, key in ipairs(keys) do
        for _, value in pairs(fields(key, ids)) do
            if value then return {'known'} end
        end
    end
end

begin()
if not last or highest > last then call('SET', base .. 'highest', highest) end
local runs = tonumber(ARGV[at])
at = at + 1
for _ = 1, runs do
    local track, offset, span, facts, number = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 4], ARGV[at + 5], tonumber(ARGV[at + 6])
    local due = ARGV[at + 3] ~= '' and tonumber(ARGV[at + 3]) or now + tonumber(ARGV[at + 2])
    local later = due > now
    local ready = later and due or now
    local state = later and 'scheduled' or 'pending'
    local head = table.concat({
        span, ' ', track, ' 0\n["', state, '",', whole(ready + offset), ',', whole(ready), ',', later and whole(due) or 'null',
        ',null,0,0,0,', whole(now), ',0,null,null,0,null,', facts, ']\n'
    })
    local values, ids, waiting, dues = {}, {}, {}, {}
    local before, behind = '0\0' .. rank_text(ready + offset), rank_text(ready)
    local due_text = format('8%015x', due)
    for place = 0, number - 1 do
        local id = ARGV[at + 7 + 2 * place]
        values[2 * place + 1], values[2 * place + 2] = id, head .. ARGV[at + 8 + 2 * place]
        ids[2 * place + 1], ids[2 * place + 2] = 0, id
        if later then
            waiting[2 * place + 1], waiting[2 * place + 2] = 0, id
            dues[2 * place + 1], dues[2 * place + 2] = 0, due_text .. id .. '\0'
        else
            waiting[2 * place + 1], waiting[2 * place + 2] = 0, before .. id .. behind
        end
        if wants and wants(track) then
            local data = '{"state":"' .. state .. '"' .. (later and ',"due_at":' .. whole(due) or '') .. '}'
            emit(whole(now), 'task.submitted', track, '', id, '', '', data)
        end
    end
    many('HSET', base .. 'tasks', values)
    many('ZADD', base .. 'tasks_ids', ids)
    many('ZADD', base .. state .. ':' .. track, waiting)
    if later then many('ZADD', base .. 'due', dues) end
    count(track, state, number)
    count(track, 'enqueued', number)
    at = at + 7 + 2 * number
end
for _, member in ipairs(blocks) do call('ZADD', base .. 'blocks', 0, member) end
tell(topics)
return {'done', whole(now)}
