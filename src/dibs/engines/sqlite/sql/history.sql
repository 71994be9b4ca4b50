-- The history of a task, oldest first. Takes its id. Returns a JSON array of (n, entry as JSON text).
SELECT json_group_array(json_array(n, entry)) FROM (SELECT n, entry FROM dibs_history WHERE task = ? ORDER BY n);
