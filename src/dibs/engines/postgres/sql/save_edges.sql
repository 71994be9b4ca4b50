-- The edges of new tasks. Takes dependents, slots, prerequisites, rules, weights, open.
INSERT INTO dibs.edges (dependent, slot, prerequisite, rule, weight, open)
SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::int[], $6::boolean[])
ON CONFLICT (dependent, slot) DO UPDATE SET
    prerequisite = excluded.prerequisite, rule = excluded.rule, weight = excluded.weight, open = excluded.open;
