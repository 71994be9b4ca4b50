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
-- Make due tasks pending: `add_pending` follows. Takes ids (JSON array). Deletes them from dibs_due; their rank stays.
UPDATE dibs_tasks SET state = 'pending', due_at = NULL
WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('scheduled', 'retrying');

-- name: due_after
-- Tasks that are not due, soonest first. Takes due_at and id to start after, limit, ids to skip (JSON array). Returns a
-- JSON array of ids. Reads a range of dibs_due.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND (due_at, id) > (?1, ?2)
      AND id NOT IN (SELECT value FROM json_each(?4))
    ORDER BY due_at, id LIMIT ?3
);

-- name: too_late
-- Waiting tasks that have expired, longest ago first. Takes now, limit, ids to skip (JSON array). Returns a JSON array of
-- ids. Reads ranges of both indexes of expiries.
SELECT json_group_array(id)
FROM (
    SELECT expires_at, id FROM dibs_tasks INDEXED BY dibs_expiries
    WHERE expires_at IS NOT NULL AND state <> 'pending' AND expires_at <= ?1
      AND id NOT IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT expires_at, id FROM dibs_pending INDEXED BY dibs_pending_expiries
    WHERE expires_at IS NOT NULL AND expires_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY expires_at, id LIMIT ?2
);

-- name: next_expiry
-- When the next waiting task expires. Takes ids to skip (JSON array). Returns an instant or NULL. The first entries of both
-- indexes of expiries that are not skipped.
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
);

-- name: reranks_due
-- Waiting tasks whose rank must be computed again. Takes now, limit, ids to skip (JSON array). Returns a JSON array of ids.
-- Reads a range of dibs_reranks, and passes over the tasks that run.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks INDEXED BY dibs_reranks
    WHERE rerank_at IS NOT NULL AND rerank_at <= ?1 AND id NOT IN (SELECT id FROM dibs_running)
      AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY rerank_at, id LIMIT ?2
);

-- name: rerank_cursor
-- How far the rerank chore has come in a queue. Takes its name. Returns (rerank_due, rerank_id).
SELECT rerank_due, rerank_id FROM dibs_queues WHERE name = ?;

-- name: save_rerank_cursor
-- Save how far the rerank chore has come. Takes due_at, id (both NULL: start over) and the queue's name.
UPDATE dibs_queues SET rerank_due = ?1, rerank_id = ?2 WHERE name = ?3;
