-- The edges of new tasks. Takes a JSON array of (dependent, slot, prerequisite, rule, weight, open).
REPLACE INTO dibs_edges (dependent, slot, prerequisite, rule, weight, open)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?);
