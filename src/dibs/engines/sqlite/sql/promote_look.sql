-- Tasks whose time has come, earliest first. Takes now, how many. Returns their ids (JSON array), how many they are by
-- stream, state and share (JSON array), and their partitions by stream (JSON array). Reads a range of dibs_due.
WITH due AS MATERIALIZED (
    SELECT id, stream, state, share, partition FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at, id LIMIT ?2
)
SELECT
    (SELECT json_group_array(id) FROM due),
    (
        SELECT json_group_array(json_array(stream, state, share, n))
        FROM (SELECT stream, state, share, count(*) AS n FROM due GROUP BY stream, state, share)
    ),
    (
        SELECT json_group_array(json_array(stream, partition))
        FROM (SELECT DISTINCT stream, partition FROM due WHERE partition IS NOT NULL)
    );
