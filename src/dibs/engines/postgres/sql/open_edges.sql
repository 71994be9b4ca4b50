-- Edges that are waited for again. Takes dependents, slots, weights.
UPDATE dibs.edges AS e SET open = true, weight = new.weight
FROM unnest($1::uuid[], $2::int[], $3::int[]) AS new (dependent, slot, weight)
WHERE e.dependent = new.dependent AND e.slot = new.slot;
