-- Remove finished tasks. Takes a JSON array of (day, id). Seeks by primary key.
DELETE FROM dibs_finished WHERE (day, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));
