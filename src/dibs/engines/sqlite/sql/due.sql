-- name: due_tasks
-- Due tasks, earliest first. Takes now, limit, ids to skip (JSON array). Returns a JSON array of (id, track, state,
-- share, partition). Reads a range of dibs_due.
SELECT json_group_array(json_array(id, track, state, share, partition))
FROM (
    SELECT id, track, state, share, partition FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND due_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY due_at, id LIMIT ?2
);

-- name: promote
-- Make due tasks pending. Takes ids (JSON array), and the tracks of queues that limit partitions (JSON array), whose
-- tasks become pending gated. Moves them from dibs_due to dibs_pending; their rank stays.
UPDATE dibs_tasks SET
    state = 'pending',
    due_at = NULL,
    gated = partition IS NOT NULL AND track IN (SELECT value FROM json_each(?2))
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'retrying');

-- name: due_after
-- Tasks that are not due, soonest first. Takes due_at and id to start after, limit, ids to skip (JSON array). Returns a
-- JSON array of rows (the columns of `Row`). Reads a range of dibs_due.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND (due_at, id) > (?1, ?2)
      AND id NOT IN (SELECT value FROM json_each(?4))
    ORDER BY due_at, id LIMIT ?3
);

-- name: too_late
-- Waiting tasks that have expired, longest ago first. Takes now, limit, ids to skip (JSON array). Returns a JSON array
-- of rows (the columns of `Row`). Reads a range of dibs_expiries.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_expiries
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= ?1
      AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY expires_at, id LIMIT ?2
);

-- name: next_expiry
-- When the next waiting task expires. Takes ids to skip (JSON array). Returns an instant or NULL. The first entry of
-- dibs_expiries that is not skipped.
SELECT (
    SELECT expires_at FROM dibs_tasks INDEXED BY dibs_expiries
    WHERE expires_at IS NOT NULL AND state <> 'running' AND id NOT IN (SELECT value FROM json_each(?))
    ORDER BY expires_at LIMIT 1
);

-- name: reranks_due
-- Waiting tasks whose rank must be computed again. Takes now, limit, ids to skip (JSON array). Returns a JSON array of
-- rows (the columns of `Row`). Reads a range of dibs_reranks.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_reranks
    WHERE rerank_at IS NOT NULL AND state <> 'running' AND rerank_at <= ?1
      AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY rerank_at, id LIMIT ?2
);

-- name: rerank_cursor
-- How far the rerank chore has come in a queue. Takes its name. Returns (rerank_due, rerank_id).
SELECT rerank_due, rerank_id FROM dibs_queues WHERE name = ?;

-- name: save_rerank_cursor
-- Save how far the rerank chore has come. Takes due_at, id (both NULL: start over) and the queue's name.
UPDATE dibs_queues SET rerank_due = ?1, rerank_id = ?2 WHERE name = ?3;
