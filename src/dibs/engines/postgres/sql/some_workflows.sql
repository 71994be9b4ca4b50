-- Workflows upwards by id. Takes the id to begin after, how many. Returns id, and whether nothing is left of it.
SELECT w.id,
    NOT EXISTS (SELECT 1 FROM dibs.tasks AS t WHERE t.workflow = w.id)
    AND NOT EXISTS (SELECT 1 FROM dibs.dead AS t WHERE t.workflow = w.id)
    AND NOT EXISTS (SELECT 1 FROM dibs.finished AS t WHERE t.workflow = w.id) AS is_empty
FROM dibs.workflows AS w WHERE w.id > $1::uuid ORDER BY w.id LIMIT $2::int;
