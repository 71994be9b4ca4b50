-- Which of some tasks others wait for. Takes ids. Returns ids. One seek in `followed` each.
SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM dibs.edges AS e WHERE e.prerequisite = wanted.id AND e.open);
