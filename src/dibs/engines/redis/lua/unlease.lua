-- Undo a claim of tasks that this process can't read: another one may.
--
-- KEYS[1]  the store
-- ARGV     for each: id, lease number, track, its member of the pending index
-- returns  how many

begin()
local number = 0
for place = 1, #ARGV, 4 do
    local id, lease, track = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    local run = call('HGET', base .. 'running', id)
    if run and string.match(run, '^%d+') == lease then
        number = number + 1
        local extras = extras_of(call('HGET', base .. 'tasks', id) or '')
        if extras then
            remove(extras[2])
            add(extras[1])
        end
        call('ZADD', base .. 'pending:' .. track, 0, ARGV[place + 3])
        call('HDEL', base .. 'running', id)
        call('ZREM', base .. 'inflight', id)
        count(track, 'running', -1)
        count(track, 'claimed', -1)
        count(track, 'pending', 1)
        leave_lease(lease, 1)
    end
end
return number
