-- What all scripts use. It stands before each of them.
--
-- KEYS[1] is the key of the store's own facts, "{prefix}:store". All other keys begin with the same prefix, so they are
-- in the same slot. Every script that writes begins with `begin`: a server that is full refuses that, before anything
-- is done.

local call, format, floor, sub = redis.call, string.format, math.floor, string.sub
local base = sub(KEYS[1], 1, -6)
local AT_ONCE = 1000

local function clock(given)
    if given ~= '' then return tonumber(given) end
    local time = call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function begin()
    call('HINCRBY', KEYS[1], 'writes', 0)
end

local function is_stale(generation)
    return call('HGET', KEYS[1], 'generation') ~= generation
end

-- A command with many arguments, some at a time: Lua can't pass any number of them.
local function many(command, key, arguments)
    for first = 1, #arguments, AT_ONCE do
        call(command, key, unpack(arguments, first, math.min(first + AT_ONCE - 1, #arguments)))
    end
end

-- Fields of a hash, in order.
local function fields(key, names)
    local found = {}
    for first = 1, #names, AT_ONCE do
        local part = call('HMGET', key, unpack(names, first, math.min(first + AT_ONCE - 1, #names)))
        for place = 1, #part do found[first + place - 1] = part[place] end
    end
    return found
end

-- A list of arguments that begins with its length; where it ends.
local function list(first)
    local last, found = first + tonumber(ARGV[first]), {}
    for place = first + 1, last do found[place - first] = ARGV[place] end
    return found, last + 1
end

-- Whole numbers as text: fourteen hex digits that sort as the numbers do, and back.
local function rank_text(rank)
    local high = floor(rank / 268435456)
    return format('%07x%07x', high + 33554432, rank - high * 268435456)
end

local function rank_of(text)
    return (tonumber(sub(text, 1, 7), 16) - 33554432) * 268435456 + tonumber(sub(text, 8, 14), 16)
end

local function whole(number)
    return format('%.0f', number)
end

-- Which tracks' events are wanted: nil if of none, otherwise a function.
local function wanted(text)
    if text == '' then return nil end
    if text == '0' then return function() return true end end
    local tracks = {}
    for track in string.gmatch(text, '%d+') do tracks[track] = true end
    return function(track) return tracks[track] end
end

-- Events. Their numbers only grow, and have no gaps.
local function emit(at, kind, track, queue, task, worker, took, data)
    local n = call('HINCRBY', KEYS[1], 'event', 1)
    call('XADD', base .. 'events', format('%.0f-0', n), 'at', at, 'type', kind, 'track', track, 'queue', queue,
        'task', task, 'worker', worker, 'took', took, 'data', data)
end

-- Tell the topics: (channel, key) pairs. With a key, only if a claim has found nothing since the last time.
local function tell(topics)
    for place = 1, #topics, 2 do
        if topics[place + 1] == '' or call('DEL', topics[place + 1]) == 1 then
            call('PUBLISH', topics[place], '')
        end
    end
end

local function count(track, what, change)
    call('HINCRBY', base .. 'counts', track .. ' ' .. what, change)
end

-- So many tasks leave a lease; the last one ends it.
local function leave_lease(lease, number)
    if call('HINCRBY', base .. 'lease_left', lease, -number) <= 0 then
        local member = call('HGET', base .. 'lease_members', lease)
        call('HDEL', base .. 'lease_left', lease)
        call('HDEL', base .. 'leases', lease)
        call('HDEL', base .. 'lease_ids', lease)
        call('HDEL', base .. 'lease_members', lease)
        if member then call('ZREM', base .. 'worker_leases', member) end
    end
end

-- What changes in other sets with a task: nil for nearly all. Its value begins with "SPAN TRACK LENGTH".
local function extras_of(value)
    local length, start = string.match(value, '^%d+ %d+ (%d+)\n()')
    if not length or length == '0' then return nil end
    local is_valid, found = pcall(cmsgpack.unpack, sub(value, start, start + tonumber(length) - 1))
    return is_valid and type(found) == 'table' and #found == 3 and found or nil
end

local function add(entries)
    for _, entry in ipairs(entries) do call('ZADD', entry[1], 0, entry[2]) end
end

local function remove(entries)
    for _, entry in ipairs(entries) do call('ZREM', entry[1], entry[2]) end
end
