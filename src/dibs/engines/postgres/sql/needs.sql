-- The edges of some tasks, in their order. Takes dependents. Returns dependent, slot, prerequisite, rule, open.
SELECT dependent, slot, prerequisite, rule, open FROM dibs.edges
WHERE dependent = ANY ($1::uuid[]) ORDER BY dependent, slot;
