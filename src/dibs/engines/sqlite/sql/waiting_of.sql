-- Some waiting tasks of some streams. Takes streams (JSON array), how many. Returns a JSON array of rows (the columns
-- of `Row`). Visits unfinished tasks by id until it has enough; only for the deletion of a queue.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks
    WHERE stream IN (SELECT value FROM json_each(?1)) AND state <> 'running' ORDER BY id LIMIT ?2
);
