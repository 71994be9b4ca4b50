-- Some pending tasks of a stream, gated ones last. Takes the stream, how many, ids to pass over (JSON array).
-- Returns a JSON array of rows (the columns of `Row`).
-- Reads a range of dibs_pending.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND stream = ?1 AND id NOT IN (SELECT value FROM json_each(?3)) LIMIT ?2
);
