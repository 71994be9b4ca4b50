-- The days that have finished tasks, oldest first. Takes nothing. Returns a JSON array of (day, lowest, highest, pruned).
SELECT json_group_array(json_array(day, lowest, highest, pruned)) FROM (SELECT * FROM dibs_days ORDER BY day);
