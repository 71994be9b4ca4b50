-- Tasks whose time has come, earliest first. Takes now, how many, ids to pass over (JSON array). Returns a JSON array of
-- (id, stream, state, share, partition). Reads a range of dibs_due.
SELECT json_group_array(json_array(id, stream, state, share, partition))
FROM (
    SELECT id, stream, state, share, partition FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND due_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY due_at, id LIMIT ?2
);
