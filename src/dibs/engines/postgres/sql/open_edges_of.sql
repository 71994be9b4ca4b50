-- Open edges of some tasks whose weight is not as wanted. Takes dependents, weights, how many. Returns dependent, slot,
-- prerequisite. Reads ranges of `needed`.
SELECT e.dependent, e.slot, e.prerequisite
FROM unnest($1::uuid[], $2::int[]) AS wanted (dependent, weight)
JOIN dibs.edges AS e ON e.dependent = wanted.dependent AND e.open AND e.weight <> wanted.weight
LIMIT $3::int;
