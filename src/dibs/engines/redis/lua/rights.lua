-- Run every command that scripts run, on a key of its own that is gone afterwards.
--
-- A right that a user lacks shows here, and not in the middle of a script, which is not undone.
--
-- KEYS[1]  the store
-- ARGV     the channel to tell
-- returns  'done'

local key = base .. 'rights'
call('HSET', key, 'a', 1)
call('HINCRBY', key, 'a', 1)
call('HGET', key, 'a')
call('HMGET', key, 'a')
call('HKEYS', key)
call('HDEL', key, 'a')
call('ZADD', key, 0, 'a')
call('ZRANGE', key, 0, 0)
call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, 1)
call('ZREVRANGEBYLEX', key, '+', '-', 'LIMIT', 0, 1)
call('ZSCORE', key, 'a')
call('ZREM', key, 'a')
call('XADD', key, '1-0', 'a', 1)
call('XTRIM', key, 'MINID', '2-0')
call('UNLINK', key)
call('SET', key, 'a')
call('GET', key)
call('EXISTS', key)
call('DEL', key)
call('TIME')
call('PUBLISH', ARGV[1], '')
return 'done'
