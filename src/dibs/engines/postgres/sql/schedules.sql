-- All schedules by name. Takes nothing. Returns name, record (JSON).
SELECT name, record FROM dibs.schedules ORDER BY name;
