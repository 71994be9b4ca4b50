-- name: clock
-- The virtual time of a queue, and the virtual time of the share without a name. Takes the queue. Returns clock,
-- virtual time, or no row.
SELECT clock, coalesce((SELECT virtual_time FROM {schema}.shares WHERE queue = $1 AND share = ''), 0) AS virtual_time
FROM {schema}.queues WHERE name = $1;

-- name: save_clock
-- Set the virtual time of a fair queue. Takes its name, the clock.
UPDATE {schema}.queues SET clock = $2 WHERE name = $1;

-- name: turn_order
-- The shares of a queue that have pending tasks, in the order of their turns. Takes the queue, limit. Returns share,
-- virtual time. Reads the beginning of `turn_order`.
SELECT share, virtual_time FROM {schema}.shares WHERE queue = $1 AND pending > 0 ORDER BY virtual_time, share LIMIT $2::int;

-- name: turn_order_as_seen
-- `turn_order` for reads, which do not reset turns. Takes the queue, its clock, limit. Returns share, virtual time (0
-- if the clock has passed it: these go by name). Sorts the shares that have pending tasks.
SELECT share, CASE WHEN virtual_time <= $2::bigint THEN 0 ELSE virtual_time END AS virtual_time
FROM {schema}.shares WHERE queue = $1 AND pending > 0
ORDER BY CASE WHEN virtual_time <= $2::bigint THEN 0 ELSE virtual_time END, share LIMIT $3::int;

-- name: tenants
-- Tenants of a fair queue that have pending tasks, in the order of their turns. Takes the queue, its clock, limit.
-- Returns share, virtual time, pending.
SELECT share, virtual_time, pending FROM {schema}.shares WHERE queue = $1 AND pending > 0
ORDER BY greatest(virtual_time, $2::bigint), share LIMIT $3::int;

-- name: count_shares
-- Add to the pending tasks of shares. Takes queues, shares, changes. The queues' locks are held.
INSERT INTO {schema}.shares AS s (queue, share, pending)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET pending = s.pending + excluded.pending;

-- name: save_virtual_times
-- Save the virtual times of shares that were served. Takes queues, shares, virtual times.
INSERT INTO {schema}.shares (queue, share, virtual_time) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET virtual_time = excluded.virtual_time;

-- name: reset_passed
-- Order the turns that the clock has passed by name. Takes the queue, its clock. A range of `turn_order`.
UPDATE {schema}.shares SET virtual_time = 0
WHERE queue = $1 AND virtual_time > 0 AND virtual_time <= $2::bigint AND pending > 0;
