-- Some blocked tasks of some streams. Takes streams (JSON array), how many, ids to pass over (JSON array). Returns a JSON array of rows (the columns of
-- `Row`). Reads ranges of dibs_blocked.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (
    SELECT t.* FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t INDEXED BY dibs_blocked
    WHERE t.state = 'blocked' AND t.stream = wanted.value
      AND t.id NOT IN (SELECT value FROM json_each(?3))
    LIMIT ?2
) AS found;
