-- name: clock
-- The virtual time of a queue. Takes its name.
SELECT clock FROM {schema}.queues WHERE name = $1;

-- name: save_clock
-- The virtual time of a fair queue has gone on. Takes its name, the clock.
UPDATE {schema}.queues SET clock = $2 WHERE name = $1;

-- name: turn_order
-- The shares of a queue that have pending tasks, in the order of their turns. Takes the queue, how many. Returns
-- share, virtual time. Reads the beginning of `turn_order`.
SELECT share, virtual_time FROM {schema}.shares WHERE queue = $1 AND pending > 0 ORDER BY virtual_time, share LIMIT $2::int;

-- name: turn_order_as_seen
-- The shares of a queue that have pending tasks, in the order of their turns, for those who only look. Takes the queue,
-- its clock, how many. Returns share, virtual time (0 if the clock has passed it: these go by name). Sorts the shares
-- that wait.
SELECT share, CASE WHEN virtual_time <= $2::bigint THEN 0 ELSE virtual_time END AS virtual_time
FROM {schema}.shares WHERE queue = $1 AND pending > 0
ORDER BY CASE WHEN virtual_time <= $2::bigint THEN 0 ELSE virtual_time END, share LIMIT $3::int;

-- name: tenants
-- Tenants of a fair queue that have pending tasks, those that are served next first. Takes the queue, its clock, how
-- many. Returns share, virtual time, pending.
SELECT share, virtual_time, pending FROM {schema}.shares WHERE queue = $1 AND pending > 0
ORDER BY greatest(virtual_time, $2::bigint), share LIMIT $3::int;

-- name: count_shares
-- Add to the pending tasks of shares. Takes queues, shares, changes. The queues' locks are held.
INSERT INTO {schema}.shares AS s (queue, share, pending)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET pending = s.pending + excluded.pending;

-- name: save_virtual_times
-- Shares that have been served. Takes queues, shares, virtual times.
INSERT INTO {schema}.shares (queue, share, virtual_time) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET virtual_time = excluded.virtual_time;

-- name: reset_passed
-- Turns that the clock has passed go by name from now on. Takes the queue, its clock. A range of `turn_order`.
UPDATE {schema}.shares SET virtual_time = 0
WHERE queue = $1 AND virtual_time > 0 AND virtual_time <= $2::bigint AND pending > 0;
