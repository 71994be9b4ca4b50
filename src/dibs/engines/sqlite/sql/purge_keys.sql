-- Free the idempotency keys of purged tasks. Takes a JSON array of (queue, key, task); a key that stands for another
-- task by now is left alone.
DELETE FROM dibs_keys
WHERE (queue, key, task) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));
