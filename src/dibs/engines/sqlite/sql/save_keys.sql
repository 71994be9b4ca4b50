-- Take idempotency keys. Takes a JSON array of (queue, key, task, fingerprint, held_until). A free key is taken over.
REPLACE INTO dibs_keys (queue, key, task, fingerprint, held_until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?);
