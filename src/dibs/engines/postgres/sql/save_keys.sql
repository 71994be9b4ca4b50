-- Take idempotency keys. Takes queues, keys, tasks, fingerprints, held_until. They are locked.
INSERT INTO dibs.keys (queue, key, task, fingerprint, held_until)
SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bigint[])
ON CONFLICT (queue, key) DO UPDATE SET
    task = excluded.task, fingerprint = excluded.fingerprint, held_until = excluded.held_until;
