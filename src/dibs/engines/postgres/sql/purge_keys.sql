-- Free the idempotency keys of purged tasks. Takes queues, keys, tasks; a key that stands for another task by now is
-- left.
DELETE FROM dibs.keys AS k USING unnest($1::text[], $2::text[], $3::uuid[]) AS gone (queue, key, task)
WHERE k.queue = gone.queue AND k.key = gone.key AND k.task = gone.task;
