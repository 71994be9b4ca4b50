-- name: claim_state
-- What a claim must know first. Takes nothing. Returns the generation, when the next waiting task is due, when the next
-- one expires, 1 if prompt steps are left, and a JSON array of (track, pending tasks). A seek in dibs_due, dibs_expiries
-- and dibs_prompt_steps each, one short range of dibs_counts. A damaged count is read as a whole number, so that it stops
-- no claim: claims only check that there is something.
SELECT
    generation,
    (SELECT min(due_at) FROM dibs_tasks WHERE due_at IS NOT NULL),
    (SELECT min(expires_at) FROM dibs_tasks WHERE expires_at IS NOT NULL AND state <> 'running'),
    EXISTS (SELECT 1 FROM dibs_steps WHERE id IS NULL),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_counts WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;

-- name: claim_state_past
-- `claim_state` while something is set aside. Takes ids of tasks and numbers of steps to skip (JSON arrays).
-- Returns the same. Reads dibs_due, dibs_expiries and dibs_prompt_steps up to the first entry that is not skipped.
SELECT
    generation,
    (
        SELECT due_at FROM dibs_tasks INDEXED BY dibs_due
        WHERE due_at IS NOT NULL AND id NOT IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT 1
    ),
    (
        SELECT expires_at FROM dibs_tasks INDEXED BY dibs_expiries
        WHERE expires_at IS NOT NULL AND state <> 'running' AND id NOT IN (SELECT value FROM json_each(?1))
        ORDER BY expires_at LIMIT 1
    ),
    EXISTS (SELECT 1 FROM dibs_steps WHERE id IS NULL AND n NOT IN (SELECT value FROM json_each(?2))),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_counts WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;

-- name: read_track
-- A stretch of one share of a track in claim order. Takes track, share, rank and id to start after, limit, gated.
-- Returns a JSON array of (rank, id, ready_at, track, partition). Reads a range of dibs_pending, already in order.
SELECT json_group_array(json_array(rank, id, ready_at, track, partition))
FROM (
    SELECT rank, id, ready_at, track, partition FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND track = ?1 AND gated = ?6 AND share = ?2 AND (rank, id) > (?3, ?4)
    ORDER BY rank, id LIMIT ?5
);

-- name: read_tracks
-- `read_track` for some of them in one step. Takes a JSON array of what it takes before the limit, then that and gated.
-- Returns an array of its answers.
SELECT '[' || group_concat((
    SELECT json_group_array(json_array(rank, id, ready_at, track, partition))
    FROM (
        SELECT rank, id, ready_at, track, partition FROM dibs_tasks INDEXED BY dibs_pending
        WHERE state = 'pending' AND track = wanted.value ->> 0 AND gated = ?3 AND share = wanted.value ->> 1
          AND (rank, id) > (wanted.value ->> 2, wanted.value ->> 3)
        ORDER BY rank, id LIMIT ?2
    )
)) || ']'
FROM json_each(?1) AS wanted;

-- name: claim_read
-- Tasks that are about to be claimed. Takes ids (JSON array). Returns a JSON array of (id, lease, lease_for, args,
-- facts) in the order of the ids. Seeks by primary key.
SELECT json_group_array(json_array(t.id, t.lease, t.lease_for, t.args, t.facts))
FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value;

-- name: claim
-- Lease pending tasks. Takes now, worker, sequence, lease (NULL: each task's own), ids (JSON array). Moves them from
-- dibs_pending to dibs_leases. The number of the lease only ever grows: it is the fence. After an error the whole
-- transaction is undone: OR FAIL saves no pages to undo this statement alone, which would take a third of its time
-- where the tasks are on many.
UPDATE OR FAIL dibs_tasks SET
    state = 'running',
    lease = lease + 1,
    lease_expires_at = ?1 + coalesce(?4, lease_for),
    started_at = ?1,
    worker = ?2,
    sequence = ?3,
    progress = NULL
WHERE id IN (SELECT value FROM json_each(?5)) AND state = 'pending';

-- name: claim_repeat
-- The leases of an earlier claim. Takes worker, sequence. Returns a JSON array of rows (the columns of `Row`) by id.
-- Visits every running task through dibs_leases: repeats are rare, running tasks few.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease,
    coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = found.batch), found.lease_expires_at),
    started_at, worker, sequence, version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_leases
    WHERE lease_expires_at IS NOT NULL AND worker = ?1 AND sequence = ?2 ORDER BY id
) AS found;
