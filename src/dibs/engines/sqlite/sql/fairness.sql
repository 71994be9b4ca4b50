-- name: clock
-- The virtual time of a queue, and the virtual time of the share without a name. Takes the queue. Returns (clock,
-- virtual time), or no row.
SELECT clock, coalesce((SELECT virtual_time FROM dibs_shares WHERE queue = ?1 AND share = ''), 0)
FROM dibs_queues WHERE name = ?1;

-- name: save_clock
-- Set the virtual time of a queue. Takes the queue, the clock.
UPDATE dibs_queues SET clock = ?2 WHERE name = ?1;

-- name: highest_virtual_time
-- The highest virtual time of a queue's shares, for when its clock can't be read. Takes the queue, the highest that can
-- be. Returns a virtual time, 0 if there is none. Reads a range of the primary key.
SELECT coalesce(CAST(max(virtual_time) AS INTEGER), 0)
FROM dibs_shares WHERE queue = ?1 AND virtual_time BETWEEN 0 AND ?2;

-- name: tenants
-- Tenants of a fair queue that have pending tasks, in the order of their turns: by name, those that the clock has
-- passed; then the others by virtual time. Takes the queue, its clock, limit. Returns a JSON array of (share, virtual
-- time, pending). Visits shares in a range of the primary key, and reads a range of dibs_share_order.
SELECT json_group_array(json_array(share, virtual_time, pending))
FROM (
    SELECT * FROM (
        SELECT share, virtual_time, pending FROM dibs_shares
        WHERE queue = ?1 AND virtual_time <= ?2 AND pending > 0 ORDER BY share LIMIT ?3
    )
    UNION ALL
    SELECT * FROM (
        SELECT share, virtual_time, pending FROM dibs_shares INDEXED BY dibs_share_order
        WHERE queue = ?1 AND virtual_time > ?2 AND pending > 0 ORDER BY virtual_time, share LIMIT ?3
    )
    LIMIT ?3
);

-- name: shares_after
-- Shares of all queues, in order. Takes queue and share to start after, limit. Returns a JSON array of (queue, share, 1
-- if nothing is pending and the clock has passed its virtual time). Reads a range of the primary key.
SELECT json_group_array(json_array(
    queue, share,
    pending = 0 AND virtual_time <= coalesce((SELECT clock FROM dibs_queues WHERE name = queue), virtual_time)
))
FROM (SELECT * FROM dibs_shares WHERE (queue, share) > (?1, ?2) ORDER BY queue, share LIMIT ?3);

-- name: save_shares
-- Update shares after a turn or a change of pending tasks. Takes a JSON array of (queue, share, virtual time or -1 if
-- it stays, change of pending tasks). Seeks by primary key.
INSERT INTO dibs_shares (queue, share, virtual_time, pending)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
ON CONFLICT (queue, share) DO UPDATE SET
    virtual_time = iif(excluded.virtual_time < 0, virtual_time, excluded.virtual_time),
    pending = pending + excluded.pending;

-- name: delete_shares
-- Delete shares. Takes a JSON array of (queue, share). Seeks by primary key.
DELETE FROM dibs_shares WHERE (queue, share) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: forget_shares
-- Delete some shares of a deleted queue. Takes the queue, limit. Reads a range of the primary key.
DELETE FROM dibs_shares WHERE (queue, share) IN (SELECT queue, share FROM dibs_shares WHERE queue = ?1 LIMIT ?2);

-- name: turn_order
-- The first turns of a track. Takes the track, limit. Returns a JSON array of (virtual time, share). Reads the beginning
-- of a range of dibs_turn_order.
SELECT json_group_array(json_array(virtual_time, share))
FROM (
    SELECT virtual_time, share FROM dibs_turns INDEXED BY dibs_turn_order
    WHERE track = ?1 ORDER BY virtual_time, share LIMIT ?2
);

-- name: add_turns
-- Add turns of shares that have tasks for claims. Takes a JSON array of (track, share, queue). The virtual time is the
-- share's own, or 0 if the clock has passed it.
INSERT INTO dibs_turns (track, share, virtual_time)
SELECT
    value ->> 0, value ->> 1,
    coalesce((
        SELECT s.virtual_time FROM dibs_shares AS s CROSS JOIN dibs_queues AS q
        WHERE s.queue = value ->> 2 AND s.share = value ->> 1 AND q.name = s.queue AND s.virtual_time > q.clock
    ), 0)
FROM json_each(?) WHERE true
ON CONFLICT (track, share) DO UPDATE SET virtual_time = excluded.virtual_time
WHERE virtual_time <> excluded.virtual_time;

-- name: save_turns
-- Update the copies of virtual times that claims read. Takes a JSON array of (track, share, virtual time). Seeks by
-- primary key.
UPDATE dibs_turns SET virtual_time = served.value ->> 2
FROM (SELECT value FROM json_each(?)) AS served
WHERE track = served.value ->> 0 AND share = served.value ->> 1;

-- name: reset_passed
-- Order the turns that the clock has passed by name, unless they are so because all have the same virtual time. Takes
-- tracks (JSON array), the clock. A range of dibs_turn_order each.
UPDATE dibs_turns SET virtual_time = 0
WHERE track IN (
    SELECT value FROM json_each(?1) AS wanted
    WHERE (SELECT min(virtual_time) FROM dibs_turns WHERE track = wanted.value)
        < (SELECT max(virtual_time) FROM dibs_turns WHERE track = wanted.value AND virtual_time <= ?2)
) AND virtual_time > 0 AND virtual_time <= ?2;

-- name: delete_turns
-- Delete turns of shares without tasks in a track. Takes the track, shares (JSON array). Seeks by primary key.
DELETE FROM dibs_turns WHERE track = ?1 AND share IN (SELECT value FROM json_each(?2));

-- name: forget_turns
-- Delete some turns of a track. Takes the track, limit. Seeks by primary key.
DELETE FROM dibs_turns WHERE track = ?1 AND share IN (SELECT share FROM dibs_turns WHERE track = ?1 LIMIT ?2);
