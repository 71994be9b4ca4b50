-- Free idempotency keys. Takes a JSON array of (queue, key).
DELETE FROM dibs_keys WHERE (queue, key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));
