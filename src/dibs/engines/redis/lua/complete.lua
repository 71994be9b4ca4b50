-- Move completed runs to the finished tasks, if their lease is the current one.
--
-- KEYS[1]  the store
-- ARGV     the generation, now (empty: the clock), the tracks whose events are wanted, a list of tracks whose tasks
--          concern others, and for each run: id, lease number, result, and 1 if there is one
-- returns  'done', for each run 1 if it was completed (0: it takes the other way), and the tracks of these; or 'stale'

if is_stale(ARGV[1]) then return {'stale'} end
local now, wants = clock(ARGV[2]), wanted(ARGV[3])
local guarded_list, at = list(4)
local guarded = {}
for _, track in ipairs(guarded_list) do guarded[track] = true end

local ids = {}
for place = at, #ARGV, 4 do ids[#ids + 1] = ARGV[place] end
local values, runs = fields(base .. 'tasks', ids), fields(base .. 'running', ids)
local has_edges = call('EXISTS', base .. 'followed') == 1
local leases, totals, left, tracks = {}, {}, {}, {}
local done, finished, gone, new_ids = {}, {}, {}, {}
local day = format('%d', floor(now / 86400000000))
local moment = whole(now)

local function is_followed(id)
    return has_edges and #call('ZRANGEBYLEX', base .. 'followed', '[' .. id .. '\0', '(' .. id .. '\1', 'LIMIT', 0, 1) > 0
end

begin()
for place, id in ipairs(ids) do
    local first = at + 4 * (place - 1)
    local run, value, number = runs[place], values[place], ARGV[first + 1]
    done[place] = 0
    local lease, rest
    if run and value then
        if run == number then
            lease = number
        else
            lease, rest = string.match(run, '^(%d+)\n.(.*)$')
        end
    end
    local track = lease == number and string.match(value, '^%d+ (%d+) ')
    if track and not guarded[track] and not is_followed(id) then
        if leases[lease] == nil then leases[lease] = call('HGET', base .. 'leases', lease) end
        if leases[lease] then
            local result = ARGV[first + 2]
            local length = ARGV[first + 3] == '1' and #result or 'null'
            local progress = rest and rest ~= '' and rest or 'null'
            finished[#finished + 1] = id
            finished[#finished + 1] = table.concat({
                '["completed",', moment, ',', lease, ',', sub(leases[lease], 2, -2), ',', progress, ',', length, ']\n', result, value
            })
            gone[#gone + 1] = id
            new_ids[#new_ids + 1] = 0
            new_ids[#new_ids + 1] = id
            totals[track] = (totals[track] or 0) + 1
            left[lease] = (left[lease] or 0) + 1
            done[place] = 1
            local extras = extras_of(value)
            if extras then
                remove(extras[2])
                add(extras[3])
            end
            if wants and wants(track) then
                local started, worker = string.match(leases[lease], '^%[(%d+),(.*),%d+%]$')
                emit(moment, 'task.completed', track, '', id, cjson.decode('[' .. worker .. ']')[1],
                    whole(now - tonumber(started)), '')
            end
        end
    end
end
if #gone > 0 then
    many('HSET', base .. 'finished:' .. day, finished)
    many('ZADD', base .. 'finished_ids:' .. day, new_ids)
    call('HSET', base .. 'days', day, '[' .. day .. ',"[]"]')
    many('HDEL', base .. 'tasks', gone)
    many('HDEL', base .. 'running', gone)
    many('ZREM', base .. 'inflight', gone)
    many('ZREM', base .. 'tasks_ids', gone)
    for track, number in pairs(totals) do
        count(track, 'running', -number)
        count(track, 'completed', number)
        count(track, 'completions', number)
        call('HINCRBY', base .. 'finished_counts:' .. day, track .. ' completed', number)
        tracks[#tracks + 1] = tonumber(track)
    end
    for lease, number in pairs(left) do leave_lease(lease, number) end
end
return {'done', done, tracks}
