-- Idempotency keys. Takes a JSON array of (queue, key). Returns a JSON array of (queue, key, task, fingerprint,
-- held_until) of those that there are. Seeks by primary key.
SELECT json_group_array(json_array(k.queue, k.key, k.task, k.fingerprint, k.held_until))
FROM json_each(?) AS wanted CROSS JOIN dibs_keys AS k
WHERE k.queue = wanted.value ->> 0 AND k.key = wanted.value ->> 1;
