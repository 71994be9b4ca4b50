-- Tasks that wait for their time, soonest first. Takes due_at and id to begin after, how many, ids to pass over
-- (JSON array). Returns a JSON array of
-- rows (the columns of `Row`). Reads a range of dibs_due.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND (due_at, id) > (?1, ?2)
      AND id NOT IN (SELECT value FROM json_each(?4))
    ORDER BY due_at, id LIMIT ?3
);
