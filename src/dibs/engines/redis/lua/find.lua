-- Tasks by id, wherever they are: one look at all places, so that a task that is moving is in one of them.
--
-- KEYS[1]  the store
-- ARGV     ids
-- returns  for each id: nothing, or its place, its value, the day it ended, its lease number and progress while it
--          runs, when the lease ends, the record of the lease

local found, missing, places = {}, {}, {}
local values = fields(base .. 'tasks', ARGV)
local runs = fields(base .. 'running', ARGV)
for place, id in ipairs(ARGV) do
    if values[place] then
        local run = runs[place]
        if run then
            local lease = string.match(run, '^%d+')
            found[place] = {'tasks', values[place], 0, run, call('ZSCORE', base .. 'inflight', id),
                call('HGET', base .. 'leases', lease)}
        else
            found[place] = {'tasks', values[place], 0}
        end
    else
        found[place] = false
        missing[#missing + 1], places[#places + 1] = id, place
    end
end

local function look(key, name, day)
    if #missing == 0 then return end
    local left, where, there = {}, {}, fields(key, missing)
    for i, id in ipairs(missing) do
        if there[i] then
            found[places[i]] = {name, there[i], day}
        else
            left[#left + 1], where[#where + 1] = id, places[i]
        end
    end
    missing, places = left, where
end

look(base .. 'dead', 'dead', 0)
if #missing > 0 then
    local days = call('HKEYS', base .. 'days')
    table.sort(days, function(one, other) return tonumber(one) > tonumber(other) end)
    for _, day in ipairs(days) do look(base .. 'finished:' .. day, 'finished', tonumber(day)) end
end
return found
