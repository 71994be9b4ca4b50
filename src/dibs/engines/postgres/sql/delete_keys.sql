-- Free idempotency keys. Takes queues, keys.
DELETE FROM dibs.keys AS k USING unnest($1::text[], $2::text[]) AS free (queue, key)
WHERE k.queue = free.queue AND k.key = free.key;
