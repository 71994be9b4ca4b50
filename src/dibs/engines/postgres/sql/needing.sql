-- Which of some tasks wait for others. Takes ids. Returns ids. One seek in `needed` each.
SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM dibs.edges AS e WHERE e.dependent = wanted.id AND e.open);
