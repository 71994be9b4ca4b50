-- Tasks whose time has come, earliest first. Takes now, how many. Returns their ids (JSON array) and how many they are
-- by stream and state (JSON array). Reads a range of dibs_due.
WITH due AS MATERIALIZED (
    SELECT id, stream, state FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at, id LIMIT ?2
)
SELECT
    (SELECT json_group_array(id) FROM due),
    (
        SELECT json_group_array(json_array(stream, state, n))
        FROM (SELECT stream, state, count(*) AS n FROM due GROUP BY stream, state)
    );
