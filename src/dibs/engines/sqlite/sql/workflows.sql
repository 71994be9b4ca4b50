-- Workflows downwards by id. Takes the id to begin below (NULL: the newest), how many. Returns a JSON array of (id, name,
-- created_at, total, counts), counts being (state, n) by place. Each is counted in a range of the covering indexes.
SELECT json_group_array(json_array(id, name, created_at, total, json(counts)))
FROM (
    SELECT *, (
        SELECT json_group_array(json_array(CAST(state AS TEXT), n))
        FROM (
            SELECT state, count(*) AS n FROM dibs_tasks WHERE workflow = w.id GROUP BY state
            UNION ALL SELECT state, count(*) FROM dibs_dead WHERE workflow = w.id GROUP BY state
            UNION ALL SELECT state, count(*) FROM dibs_finished WHERE workflow = w.id GROUP BY state
        )
    ) AS counts
    FROM dibs_workflows AS w WHERE id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2
);
