-- Write what a transaction has decided, if what it has read is still so; nothing otherwise.
--
-- KEYS[1]  the store
-- ARGV     the generation; then three lists of lists (how many; for each its length and its words): what must still be
--          stored, the commands to run, and the topics to tell (as one list)
-- returns  'done', 'stale' (the catalog has changed), or 'moved' (something else has)

local at = 2

local function next_list()
    local size = tonumber(ARGV[at])
    local first = at + 1
    at = first + size
    return first, at - 1
end

if ARGV[1] ~= '' and is_stale(ARGV[1]) then return 'stale' end

local is_so = {
    field = function(first, last)
        local value = call('HGET', ARGV[first], ARGV[first + 1])
        if first + 2 > last then return not value end
        return value == ARGV[first + 2]
    end,
    head = function(first)
        local value, head = call('HGET', ARGV[first], ARGV[first + 1]), ARGV[first + 2]
        return value and sub(value, 1, #head) == head
    end,
    score = function(first)
        local score = call('ZSCORE', ARGV[first], ARGV[first + 1])
        return score and tonumber(score) == tonumber(ARGV[first + 2])
    end,
    range = function(first, last)
        return table.concat(call(unpack(ARGV, first, last - 1)), '\n') == ARGV[last]
    end
}

local checks = tonumber(ARGV[at])
at = at + 1
for _ = 1, checks do
    local first, last = next_list()
    if not is_so[ARGV[first]](first + 1, last) then return 'moved' end
end

begin()
local own = {
    EVENT = function(first, last) emit(unpack(ARGV, first, last)) end,
    LEAVE = function(first) leave_lease(ARGV[first], tonumber(ARGV[first + 1])) end,
    RAISE = function(first)
        local highest = call('GET', ARGV[first])
        if not highest or ARGV[first + 1] > highest then call('SET', ARGV[first], ARGV[first + 1]) end
    end
}
local commands = tonumber(ARGV[at])
at = at + 1
for _ = 1, commands do
    local first, last = next_list()
    local special = own[ARGV[first]]
    if special then special(first + 1, last) else call(unpack(ARGV, first, last)) end
end
tell((list(at)))
return 'done'
