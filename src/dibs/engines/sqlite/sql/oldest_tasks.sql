-- Unfinished tasks upwards by id. Takes the id to begin after, how many. Returns a JSON array of rows (the columns of
-- `Row`). Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (SELECT * FROM dibs_tasks WHERE id > ?1 ORDER BY id LIMIT ?2);
