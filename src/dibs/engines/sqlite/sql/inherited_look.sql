-- Unfinished tasks that inherit otherwise than is written in their facts. Takes ids (JSON array). Returns a JSON array
-- of (id, the highest weight of an open edge that leads to it, or 0). One seek in dibs_followed each.
SELECT json_group_array(json_array(id, heaviest))
FROM (
    SELECT
        t.id,
        coalesce(iif(json_valid(t.facts), t.facts ->> 'inherited', 0), 0) AS inherited,
        coalesce((
            SELECT e.weight FROM dibs_edges AS e
            WHERE e.prerequisite = t.id AND e.open = 1 ORDER BY e.weight DESC LIMIT 1
        ), 0) AS heaviest
    FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t
    WHERE t.id = wanted.value
)
WHERE inherited <> heaviest;
