-- All idempotency keys, in order. Takes queue and key to begin after, how many. Returns a JSON array of (queue, key,
-- task, fingerprint, held_until). Reads a range of the primary key.
SELECT json_group_array(json_array(queue, key, task, fingerprint, held_until))
FROM (SELECT * FROM dibs_keys WHERE (queue, key) > (?1, ?2) ORDER BY queue, key LIMIT ?3);
