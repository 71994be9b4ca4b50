-- Lease the most urgent tasks of queues without limits and shares.
--
-- KEYS[1]  the store
-- ARGV     the generation, now (empty: the clock), the worker as JSON, the worker, its sequence, the span of the lease
--          (empty: each task's own), how many, whether queues are served strictly in order, whether upkeep has been
--          done, the tracks whose starts are wanted events, lists of ids and of steps to pass over, a list of keys to
--          set if too few tasks were found, and for each track: its number, the order of its queue, lane, scale
-- returns  'done', now, the lease number, when the next task is due, when the next one expires, whether steps are left;
--          members of the pending index, values, ends of leases and tracks of the tasks, in the order they are given; or
--          'stale'; or 'upkeep': some must be done first
--
-- Tracks of one lane are merged by rank and id. Lanes and queues are merged by their heads: effective priority, then
-- since when the head has been ready, then the order asked for.

if is_stale(ARGV[1]) then return {'stale'} end
local now, worker, sequence, own_span, most = clock(ARGV[2]), ARGV[3], ARGV[5], ARGV[6], tonumber(ARGV[7])
local in_order, wants = ARGV[8] == '1', wanted(ARGV[10])
local passed_list, at = list(11)
local steps, idle
steps, at = list(at)
idle, at = list(at)
local passed = {}
for _, id in ipairs(passed_list) do passed[id] = true end

-- The instant of the first entry of an ordered set that is not passed over.
local function first_instant(name)
    for _, member in ipairs(call('ZRANGE', base .. name, 0, #passed_list)) do
        if not passed[sub(member, 17, 52)] then return tonumber(sub(member, 2, 16), 16) end
    end
end

local function has_steps()
    local skipped = {}
    for _, step in ipairs(steps) do skipped[tonumber(step)] = true end
    for _, member in ipairs(call('ZRANGE', base .. 'prompt_steps', 0, #steps)) do
        if not skipped[tonumber(sub(member, 2), 16)] then return true end
    end
    return false
end

local due, expiry, left = first_instant('due'), first_instant('expiries'), has_steps()
if ARGV[9] == '0' and (left or (due and due <= now) or (expiry and expiry <= now)) then return {'upkeep'} end

-- The heads of each track, some at a time.
local tracks = {}
for place = at, #ARGV, 4 do
    tracks[#tracks + 1] = {
        number = ARGV[place], order = tonumber(ARGV[place + 1]), lane = tonumber(ARGV[place + 2]),
        scale = tonumber(ARGV[place + 3]), low = '[0', heads = {}, place = 1
    }
end
local page = #tracks > 1 and math.max(8, math.ceil(2 * most / #tracks)) or most
page = math.min(page, most)

local function refill(track)
    while track.place > #track.heads and not track.ended do
        local found = call('ZRANGEBYLEX', base .. 'pending:' .. track.number, track.low, '(1', 'LIMIT', 0, page)
        track.heads, track.place = {}, 1
        for _, member in ipairs(found) do
            if not passed[sub(member, 17, 52)] then track.heads[#track.heads + 1] = member end
        end
        track.ended = #found < page
        if #found > 0 then track.low = '(' .. found[#found] end
    end
    return track.heads[track.place]
end

local open = {}
if most > 0 then
    for _, track in ipairs(tracks) do
        if refill(track) then open[#open + 1] = track end
    end
end

-- Whether the head of one lane goes before that of another.
local function key_of(track)
    local head = track.heads[track.place]
    return math.min((now - rank_of(sub(head, 3, 16))) / track.scale, 100), sub(head, 53, 66)
end

local function is_before(one, other)
    if one.order == other.order and one.lane == other.lane then
        return sub(one.heads[one.place], 3, 52) < sub(other.heads[other.place], 3, 52)
    end
    if in_order and one.order ~= other.order then return one.order < other.order end
    local mine, my_ready = key_of(one)
    local its, its_ready = key_of(other)
    if mine ~= its then return mine > its end
    if my_ready ~= its_ready then return my_ready < its_ready end
    if one.order ~= other.order then return one.order < other.order end
    return one.lane < other.lane
end

local members, owners = {}, {}
while #members < most and #open > 0 do
    local best
    if #open == 1 then
        best = 1
    else
        -- The best of each lane first, then the best of these: lanes are compared by their heads alone.
        local lanes, heads = {}, {}
        for place, track in ipairs(open) do
            local lane = track.order .. ' ' .. track.lane
            if not lanes[lane] then
                heads[#heads + 1] = lane
                lanes[lane] = place
            elseif is_before(track, open[lanes[lane]]) then
                lanes[lane] = place
            end
        end
        for _, lane in ipairs(heads) do
            if not best or is_before(open[lanes[lane]], open[best]) then best = lanes[lane] end
        end
    end
    local track = open[best]
    members[#members + 1], owners[#owners + 1] = track.heads[track.place], track.number
    track.place = track.place + 1
    if not refill(track) then table.remove(open, best) end
end

if #members < most then
    for _, key in ipairs(idle) do call('SET', key, '1') end
end
local answer = {'done', whole(now), '', due and whole(due) or '', '', left and 1 or 0, members, {}, {}, owners}
if #members > 0 then
    begin()
    local lease = whole(math.max(tonumber(call('HGET', KEYS[1], 'lease') or 0) + 1, now))
    call('HSET', KEYS[1], 'lease', lease)
    answer[3] = lease
    local ids = {}
    for place, member in ipairs(members) do ids[place] = sub(member, 17, 52) end
    local values = fields(base .. 'tasks', ids)
    local ends, running, gone, totals, blocks, number = {}, {}, {}, {}, {}, 0
    for place, id in ipairs(ids) do
        local value, track = values[place], owners[place]
        local span = own_span ~= '' and own_span or (value and string.match(value, '^%d+') or '0')
        local until_then = whole(now + tonumber(span))
        ends[2 * place - 1], ends[2 * place] = until_then, id
        running[2 * place - 1], running[2 * place] = id, lease
        answer[8][place], answer[9][place] = value or '', until_then
        gone[track] = gone[track] or {}
        table.insert(gone[track], members[place])
        totals[track] = (totals[track] or 0) + 1
        local extras = value and extras_of(value)
        if extras then
            remove(extras[1])
            add(extras[2])
        end
        local block = tonumber(sub(id, 1, 8) .. sub(id, 10, 11), 16) or 0
        if not blocks[block] then
            blocks[block], number = true, number + 1
        end
        if wants and wants(track) then emit(whole(now), 'task.started', track, '', id, ARGV[4], '', '') end
    end
    many('ZADD', base .. 'inflight', ends)
    many('HSET', base .. 'running', running)
    for track, these in pairs(gone) do many('ZREM', base .. 'pending:' .. track, these) end
    for track, n in pairs(totals) do
        count(track, 'pending', -n)
        count(track, 'running', n)
        count(track, 'claimed', n)
    end
    local member = ARGV[4] .. '\0' .. format('8%015x', tonumber(sequence)) .. format('8%015x', tonumber(lease))
    call('HSET', base .. 'leases', lease, '[' .. whole(now) .. ',' .. worker .. ',' .. sequence .. ']')
    call('HSET', base .. 'lease_ids', lease, table.concat(ids, ' '))
    call('HSET', base .. 'lease_left', lease, #ids)
    call('HSET', base .. 'lease_members', lease, member)
    call('ZADD', base .. 'worker_leases', 0, member)
    local wide = number > 4
    for block in pairs(blocks) do
        local trait = (wide and 'wide worker ' or 'worker ') .. ARGV[4]
        call('ZADD', base .. 'blocks', 0, trait .. '\0' .. format('8%015x', wide and block - block % 16 or block))
    end
end
expiry = first_instant('expiries')
answer[5] = expiry and whole(expiry) or ''
return answer
