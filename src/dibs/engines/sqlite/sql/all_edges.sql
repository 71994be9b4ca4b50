-- All edges, in order. Takes dependent and slot to begin after, how many. Returns a JSON array of (dependent, slot,
-- prerequisite, rule, open). Reads a range of the primary key.
SELECT json_group_array(json_array(dependent, slot, prerequisite, rule, open))
FROM (SELECT * FROM dibs_edges WHERE (dependent, slot) > (?1, ?2) ORDER BY dependent, slot LIMIT ?3);
