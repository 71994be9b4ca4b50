-- Tasks whose time has come, earliest first. Takes now, how many, ids to pass over (JSON array). Returns their ids (JSON array), how many they are by
-- stream, state and share (JSON array), their partitions by stream (JSON array), and ids of those that
-- are in no state to be promoted (JSON array). Reads a range of dibs_due.
WITH due AS MATERIALIZED (
    SELECT id, stream, state, share, partition FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND due_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY due_at, id LIMIT ?2
)
SELECT
    (SELECT json_group_array(id) FROM due WHERE state IN ('scheduled', 'retrying')),
    (
        SELECT json_group_array(json_array(stream, state, share, n))
        FROM (SELECT stream, state, share, count(*) AS n FROM due WHERE state IN ('scheduled', 'retrying') GROUP BY stream, state, share)
    ),
    (
        SELECT json_group_array(json_array(stream, partition))
        FROM (SELECT DISTINCT stream, partition FROM due WHERE partition IS NOT NULL)
    ),
    (SELECT json_group_array(id) FROM due WHERE state NOT IN ('scheduled', 'retrying'));
