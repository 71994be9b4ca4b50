-- What workers did, minute by minute. Takes a JSON array of (minute, worker, queue, tier, record as JSON text).
-- Written whole: a repeat changes nothing.
REPLACE INTO dibs_minutes (minute, worker, queue, tier, record)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?);
