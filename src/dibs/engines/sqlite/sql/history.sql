-- The history of a task, oldest first. Takes its id. Returns a JSON array of entries (JSON text each).
SELECT json_group_array(entry) FROM (SELECT entry FROM dibs_history WHERE task = ? ORDER BY n);
