-- What a claim gave before. Takes worker, sequence. Returns a JSON array of rows (the columns of `Row`) by id.
-- Visits every running task through dibs_leases: repeats are rare, running tasks few.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_leases
    WHERE lease_expires_at IS NOT NULL AND worker = ?1 AND sequence = ?2 ORDER BY id
);
