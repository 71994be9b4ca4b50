-- Unfinished members of a workflow, upwards by id. Takes the workflow, the id to begin after, how many. Returns a JSON
-- array of rows (the columns of `Row`). Reads a range of dibs_members.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (SELECT * FROM dibs_tasks WHERE workflow = ?1 AND id > ?2 ORDER BY id LIMIT ?3);
