-- The highest weight of the open edges that lead to each of some tasks. Takes ids. Returns id, weight; those that
-- nobody waits for are left out. One seek in `followed` each.
SELECT wanted.id, e.weight FROM unnest($1::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT weight FROM dibs.edges WHERE prerequisite = wanted.id AND open ORDER BY weight DESC LIMIT 1
) AS e;
