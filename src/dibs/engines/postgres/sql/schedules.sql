-- All schedules by name. Takes nothing. Returns records (JSON).
SELECT record FROM dibs.schedules ORDER BY name;
