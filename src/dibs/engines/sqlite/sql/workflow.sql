-- One workflow. Takes its id. Returns a JSON array of (id, name, created_at, total, counts) as workflows.sql does, empty
-- if there is no such workflow.
SELECT json_group_array(json_array(id, name, created_at, total, (
    SELECT json_group_array(json_array(CAST(state AS TEXT), n))
    FROM (
        SELECT state, count(*) AS n FROM dibs_tasks WHERE workflow = ?1 GROUP BY state
        UNION ALL SELECT state, count(*) FROM dibs_dead WHERE workflow = ?1 GROUP BY state
        UNION ALL SELECT state, count(*) FROM dibs_finished WHERE workflow = ?1 GROUP BY state
    )
)))
FROM dibs_workflows WHERE id = ?1;
