-- Edges whose dependent has another urgency. Takes dependents, slots, weights.
UPDATE dibs.edges AS e SET weight = new.weight
FROM unnest($1::uuid[], $2::int[], $3::int[]) AS new (dependent, slot, weight)
WHERE e.dependent = new.dependent AND e.slot = new.slot;
