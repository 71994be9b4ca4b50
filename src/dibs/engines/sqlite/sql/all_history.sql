-- All entries of histories, in order. Takes task and number to begin after, how many. Returns a JSON array of (task, n,
-- entry as JSON text). Reads a range of the primary key.
SELECT json_group_array(json_array(task, n, entry))
FROM (SELECT task, n, entry FROM dibs_history WHERE (task, n) > (?1, ?2) ORDER BY task, n LIMIT ?3);
