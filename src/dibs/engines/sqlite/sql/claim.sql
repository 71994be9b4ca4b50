-- name: claim_state
-- What a claim must know first. Takes nothing. Returns the generation, when the next waiting task is due, when the next
-- one expires, 1 if prompt steps are left, and a JSON array of (track, pending tasks). A seek in dibs_due, both indexes of
-- expiries and dibs_prompt_steps each, one short range of dibs_counts. A damaged count is read as a whole number, so that it stops
-- no claim: claims only check that there is something.
SELECT
    generation,
    (SELECT min(due_at) FROM dibs_tasks WHERE due_at IS NOT NULL),
    (
        SELECT min(at)
        FROM (
            SELECT min(expires_at) AS at FROM dibs_tasks WHERE expires_at IS NOT NULL AND state <> 'pending'
            UNION ALL SELECT min(expires_at) FROM dibs_pending WHERE expires_at IS NOT NULL
        )
    ),
    EXISTS (SELECT 1 FROM dibs_steps WHERE id IS NULL),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_counts WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;

-- name: claim_state_past
-- `claim_state` while something is set aside. Takes ids of tasks and numbers of steps to skip (JSON arrays).
-- Returns the same. Reads dibs_due, both indexes of expiries and dibs_prompt_steps up to the first entry that is not skipped.
SELECT
    generation,
    (
        SELECT due_at FROM dibs_tasks INDEXED BY dibs_due
        WHERE due_at IS NOT NULL AND id NOT IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT 1
    ),
    (
        SELECT min(at)
        FROM (
            SELECT * FROM (
                SELECT expires_at AS at FROM dibs_tasks INDEXED BY dibs_expiries
                WHERE expires_at IS NOT NULL AND state <> 'pending' AND id NOT IN (SELECT value FROM json_each(?1))
                ORDER BY expires_at LIMIT 1
            )
            UNION ALL
            SELECT * FROM (
                SELECT expires_at FROM dibs_pending INDEXED BY dibs_pending_expiries
                WHERE expires_at IS NOT NULL AND id NOT IN (SELECT value FROM json_each(?1))
                ORDER BY expires_at LIMIT 1
            )
        )
    ),
    EXISTS (SELECT 1 FROM dibs_steps WHERE id IS NULL AND n NOT IN (SELECT value FROM json_each(?2))),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_counts WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;

-- name: read_track
-- A stretch of one share of a track in claim order. Takes track, share, rank and id to start after, limit, gated.
-- Returns a JSON array of (rank, id, ready_at, track, partition). Reads a range of the primary key, already in order.
SELECT json_group_array(json_array(rank, id, ready_at, track, partition))
FROM (
    SELECT rank, id, ready_at, track, partition FROM dibs_pending
    WHERE track = ?1 AND gated = ?6 AND share = ?2 AND (rank, id) > (?3, ?4)
    ORDER BY rank, id LIMIT ?5
);

-- name: claim_read
-- Tasks that are about to be claimed. Takes ids (JSON array). Returns a JSON array of (id, lease, lease_for, args,
-- facts) in the order of the ids. Seeks by primary key.
SELECT json_group_array(json_array(t.id, t.lease, t.lease_for, t.args, t.facts))
FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value AND t.state = 'pending';

-- name: add_lease
-- The lease of tasks that are claimed together. Takes worker, sequence, now, when it ends, how many tasks. The batch is the
-- rowid: RETURNING would cost twice as much.
INSERT INTO dibs_leases (worker, sequence, started_at, expires_at, held) VALUES (?, ?, ?, ?, ?);

-- name: claim
-- Start pending tasks, which are then deleted from dibs_pending. Takes ids (JSON array), the number of their batch.
-- Appends to dibs_running. The number of a task's lease only ever grows: it is the fence.
INSERT INTO dibs_running (id, lease, batch, track, partition)
SELECT t.id, t.lease + 1, ?2, t.track, t.partition
FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value;

-- name: claim_repeat
-- The running tasks of an earlier claim. Takes worker, sequence. Returns a JSON array of ids, in order.
-- Visits every running task: repeats are rare, running tasks few.
SELECT json_group_array(id)
FROM (
    SELECT r.id FROM dibs_running AS r CROSS JOIN dibs_leases AS l
    WHERE l.batch = r.batch AND l.worker = ?1 AND l.sequence = ?2 ORDER BY r.id
);

-- name: add_pending
-- Put tasks that have become pending into the order of claims. Takes a JSON object: ids, and whether each is gated.
-- Inserts into dibs_pending and to those of its partial indexes that concern the task.
INSERT INTO dibs_pending (track, gated, share, rank, id, ready_at, partition, expires_at)
SELECT t.track, come.value, t.share, t.rank, t.id, t.ready_at, t.partition, t.expires_at
FROM json_each(?) AS come CROSS JOIN dibs_tasks AS t WHERE t.id = come.key AND t.state = 'pending';

-- name: delete_stretch
-- Take the claimed tasks of one stretch out of the order of claims; no task with a partition is among them, so none is
-- gated. Takes track, share, rank and id of the first and of the last, ids (JSON array). Reads what `read_track` has read:
-- a third of what seeking each costs.
DELETE FROM dibs_pending
WHERE track = ?1 AND gated = 0 AND share = ?2 AND (rank, id) >= (?3, ?4) AND (rank, id) <= (?5, ?6)
  AND id IN (SELECT value FROM json_each(?7));

-- name: delete_pending
-- Take tasks that are pending no longer out of the order of claims, before their rows change. Takes ids (JSON array), 1 if
-- some may be gated (else 0). Seeks by primary key in both tables. `id` is compared first: SQLite would use no column of
-- another type than the first.
DELETE FROM dibs_pending
WHERE (id, track, share, rank) IN (
    SELECT t.id, t.track, t.share, t.rank
    FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
) AND gated IN (0, ?2);
