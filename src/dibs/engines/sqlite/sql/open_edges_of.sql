-- Open edges of some tasks whose weight is not as wanted. Takes a JSON array of (dependent, weight), how many.
-- Returns a JSON array of (dependent, slot, prerequisite). Reads ranges of dibs_needed.
SELECT json_group_array(json_array(dependent, slot, prerequisite))
FROM (
    SELECT e.dependent, e.slot, e.prerequisite
    FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e INDEXED BY dibs_needed
    WHERE e.dependent = wanted.value ->> 0 AND e.open = 1 AND e.weight <> wanted.value ->> 1
    LIMIT ?2
);
