-- Some tasks of some streams that wait for their time. Takes streams (JSON array), how many, ids to pass over (JSON array). Returns a JSON array of
-- rows (the columns of `Row`). Visits waiting tasks through dibs_due until it has enough; only when a queue is deleted.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND stream IN (SELECT value FROM json_each(?1))
      AND id NOT IN (SELECT value FROM json_each(?3))
    LIMIT ?2
);
