-- Open edges that lead to some tasks, most urgent first. Takes prerequisites, how many. Returns the position of the
-- prerequisite, dependent, slot, rule. Reads ranges of `followed`.
SELECT (wanted.k - 1)::int AS position, e.dependent, e.slot, e.rule
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, k)
CROSS JOIN LATERAL (
    SELECT * FROM dibs.edges WHERE prerequisite = wanted.id AND open
    ORDER BY weight DESC, dependent, slot LIMIT $2::int
) AS e
ORDER BY wanted.k LIMIT $2::int;
