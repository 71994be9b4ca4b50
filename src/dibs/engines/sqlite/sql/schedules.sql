-- All schedules by name. Takes nothing. Returns a JSON array of (name, record as JSON text).
SELECT json_group_array(json_array(name, record)) FROM (SELECT * FROM dibs_schedules ORDER BY name);
