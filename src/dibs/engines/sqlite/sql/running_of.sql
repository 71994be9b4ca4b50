-- Running tasks of some workers. Takes workers (JSON array), how many, ids to pass over (JSON array). Returns a JSON
-- array of rows (the columns of `Row`). Visits the running tasks through dibs_leases, only when a worker has been found
-- dead.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_leases
    WHERE lease_expires_at IS NOT NULL AND worker IN (SELECT value FROM json_each(?1))
      AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY lease_expires_at, id LIMIT ?2
);
