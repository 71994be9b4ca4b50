-- Workflows of which nothing is left, among some, upwards by id. Takes the id to begin after, how many to look at.
-- Returns how many were looked at, the last of them, and the empty ones (JSON array). A few seeks for each.
WITH looked AS MATERIALIZED (SELECT id FROM dibs_workflows WHERE id > ?1 ORDER BY id LIMIT ?2)
SELECT
    (SELECT count(*) FROM looked),
    (SELECT max(id) FROM looked),
    (
        SELECT json_group_array(id) FROM looked
        WHERE NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE workflow = looked.id)
          AND NOT EXISTS (SELECT 1 FROM dibs_dead WHERE workflow = looked.id)
          AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE workflow = looked.id)
    );
