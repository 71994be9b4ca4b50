-- What is left to be followed up, oldest first. Takes how many, numbers to pass over (JSON array). Returns a JSON array
-- of (n, errand as JSON text).
SELECT json_group_array(json_array(n, errand))
FROM (
    SELECT n, errand FROM dibs_errands
    WHERE n NOT IN (SELECT value FROM json_each(?2)) ORDER BY n LIMIT ?1
);
