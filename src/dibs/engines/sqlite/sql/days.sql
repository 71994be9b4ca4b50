-- The days that have finished tasks, oldest first. Takes nothing. Returns a JSON array of (day, pruned).
SELECT json_group_array(json_array(day, pruned)) FROM (SELECT * FROM dibs_days ORDER BY day);
