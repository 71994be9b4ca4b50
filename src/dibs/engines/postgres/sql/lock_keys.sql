-- Have idempotency keys to oneself. Takes queues, keys, in order. Returns queue, key, task, fingerprint, held_until.
SELECT * FROM dibs.lock_keys($1::text[], $2::text[]);
