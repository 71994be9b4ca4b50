-- Tasks that have a history or edges, upwards by id. Takes the id to begin after, how many. Returns id, and whether
-- the task is in none of the three places.
SELECT s.id,
    NOT EXISTS (SELECT 1 FROM dibs.tasks AS t WHERE t.id = s.id)
    AND NOT EXISTS (SELECT 1 FROM dibs.dead AS t WHERE t.id = s.id)
    AND NOT EXISTS (SELECT 1 FROM dibs.finished AS t WHERE t.id = s.id) AS is_gone
FROM (
    SELECT id FROM (
        (SELECT DISTINCT task AS id FROM dibs.history WHERE task > $1::uuid ORDER BY task LIMIT $2::int)
        UNION
        (SELECT DISTINCT dependent AS id FROM dibs.edges WHERE dependent > $1::uuid ORDER BY dependent LIMIT $2::int)
    ) AS both_kinds
    ORDER BY id LIMIT $2::int
) AS s
ORDER BY s.id;
