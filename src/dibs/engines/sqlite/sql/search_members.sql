-- Members of a workflow downwards by id. Takes the workflow, the id to begin below, how many. Returns ids (JSON array).
-- Merges ranges of the three indexes of members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks WHERE workflow = ?1 AND id < ?2
    UNION ALL SELECT id FROM dibs_dead WHERE workflow = ?1 AND id < ?2
    UNION ALL SELECT id FROM dibs_finished WHERE workflow = ?1 AND id < ?2
    ORDER BY id DESC LIMIT ?3
);
