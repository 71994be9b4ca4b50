-- name: clock
-- The virtual time of a queue, and the virtual time of the share without a name. Takes the queue. Returns clock,
-- virtual time, or no row.
SELECT clock, coalesce((SELECT virtual_time FROM {schema}.shares WHERE queue = $1 AND share = ''), 0) AS virtual_time
FROM {schema}.queues WHERE name = $1;

-- name: save_clock
-- Set the virtual time of a fair queue. Takes its name, the clock.
UPDATE {schema}.queues SET clock = $2 WHERE name = $1;

-- name: first_turns
-- The first turns of tracks. Takes tracks, the clock of their queue, limit for each. See functions/fairness.sql.
SELECT * FROM {schema}.first_turns_{version}($1::int[], $2::bigint, $3::int);

-- name: tenants
-- Tenants of a fair queue that have pending tasks, in the order of their turns. Takes the queue, its clock, limit.
-- Returns share, virtual time, pending.
SELECT share, virtual_time, pending FROM {schema}.shares WHERE queue = $1 AND pending > 0
ORDER BY greatest(virtual_time, $2::bigint), share LIMIT $3::int;

-- name: save_shares
-- Update shares after a turn or a change of pending tasks. Takes queues, shares, virtual times (-1: it stays), changes
-- of pending tasks. The queues' locks are held.
INSERT INTO {schema}.shares AS s (queue, share, virtual_time, pending)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET
    virtual_time = CASE WHEN excluded.virtual_time < 0 THEN s.virtual_time ELSE excluded.virtual_time END,
    pending = s.pending + excluded.pending;

-- name: shares_after
-- Shares of all queues, in order. Takes queue and share to start after, limit. Returns queue, share, whether nothing is
-- pending and the clock has passed its virtual time. Reads a range of the primary key.
SELECT
    s.queue, s.share,
    s.pending = 0 AND s.virtual_time <= coalesce(q.clock, s.virtual_time) AS is_idle
FROM (
    SELECT * FROM {schema}.shares WHERE (queue, share) > ($1, $2) ORDER BY queue, share LIMIT $3::int
) AS s
LEFT JOIN {schema}.queues AS q ON q.name = s.queue ORDER BY s.queue, s.share;

-- name: delete_shares
-- Delete shares. Takes queues, shares. Seeks by primary key.
DELETE FROM {schema}.shares AS s USING unnest($1::text[], $2::text[]) AS idle (queue, share)
WHERE s.queue = idle.queue AND s.share = idle.share;

-- name: add_turns
-- Add turns of shares that have tasks for claims. Takes tracks, shares, queues. See functions/fairness.sql.
SELECT {schema}.add_turns_{version}($1::int[], $2::text[], $3::text[]);

-- name: save_turns
-- Update the copies of virtual times that claims read. Takes tracks, shares, virtual times. Seeks by primary key.
-- Not an UPDATE, for which the planner may read all turns: each is found by its key, and conflicts.
INSERT INTO {schema}.turns (track, share, virtual_time)
SELECT s.track, s.share, s.virtual_time FROM unnest($1::int[], $2::text[], $3::bigint[]) AS s (track, share, virtual_time)
CROSS JOIN LATERAL (SELECT FROM {schema}.turns AS t WHERE t.track = s.track AND t.share = s.share LIMIT 1) AS t
ON CONFLICT (track, share) DO UPDATE SET virtual_time = excluded.virtual_time;

-- name: delete_turns
-- Delete turns of shares without tasks in a track. Takes the track, shares. Seeks by primary key.
DELETE FROM {schema}.turns AS t USING unnest($2::text[]) AS idle (share)
WHERE t.track = $1::int AND t.share = idle.share;

-- name: forget_turns
-- Delete some turns of a track. Takes the track, limit. Seeks by primary key.
DELETE FROM {schema}.turns WHERE track = $1::int AND share IN (
    SELECT t.share FROM {schema}.turns AS t WHERE t.track = $1::int LIMIT $2::int
);
