-- All edges of some tasks. Takes dependents (JSON array). Returns a JSON array of (dependent, slot, prerequisite, rule).
-- Reads ranges of the primary key.
SELECT json_group_array(json_array(dependent, slot, prerequisite, rule))
FROM (
    SELECT e.dependent, e.slot, e.prerequisite, e.rule
    FROM json_each(?) AS wanted CROSS JOIN dibs_edges AS e WHERE e.dependent = wanted.value
    ORDER BY wanted.key, e.slot
);
