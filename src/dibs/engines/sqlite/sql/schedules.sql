-- All schedules by name. Takes nothing. Returns a JSON array of records (JSON text each).
SELECT json_group_array(record) FROM (SELECT record FROM dibs_schedules ORDER BY name);
