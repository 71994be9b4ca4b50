-- When partitions without tokens will have one, as far as tasks are pending there. Takes a JSON array of (queue,
-- partition, level, at, opens_at, partition with the queue's name in front). They have buckets already, of which only
-- opens_at changes. Seeks by primary key and in dibs_partitions.
INSERT INTO dibs_buckets (queue, scope, whose, level, at, opens_at)
SELECT value ->> 0, 'partition', value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(?)
WHERE EXISTS (SELECT 1 FROM dibs_tasks WHERE partition = value ->> 5 AND state = 'pending')
ON CONFLICT (queue, scope, whose) DO UPDATE SET opens_at = excluded.opens_at;
