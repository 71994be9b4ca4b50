-- The edges of some tasks, in their order. Takes dependents (JSON array). Returns a JSON array of (dependent,
-- prerequisite, rule, open). Reads ranges of the primary key.
SELECT json_group_array(json_array(dependent, prerequisite, rule, open))
FROM (
    SELECT e.dependent, e.prerequisite, e.rule, e.open
    FROM json_each(?) AS wanted CROSS JOIN dibs_edges AS e WHERE e.dependent = wanted.value
    ORDER BY wanted.key, e.slot
);
