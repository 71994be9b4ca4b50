-- The states of tasks, wherever they are. Takes ids (JSON array). Returns three JSON arrays of (id, state). Seeks by
-- primary key, like find.sql, but reads nothing else.
SELECT
    (
        SELECT json_group_array(json_array(t.id, t.state))
        FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
    ),
    (
        SELECT json_group_array(json_array(t.id, t.state))
        FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
    ),
    (
        SELECT json_group_array(json_array(t.id, t.state))
        FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
        WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value
    );
