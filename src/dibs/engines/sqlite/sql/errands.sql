-- What is left to be followed up, oldest first. Takes how many. Returns a JSON array of (n, errand as JSON text).
SELECT json_group_array(json_array(n, errand)) FROM (SELECT n, errand FROM dibs_errands ORDER BY n LIMIT ?);
