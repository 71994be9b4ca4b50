-- Spend tokens of partitions. Takes a JSON array of (queue, partition with the queue's name in front, level, at, opens_at
-- or NULL). When it opens is kept only where tasks are pending. Seeks by primary key and in dibs_partitions.
REPLACE INTO dibs_buckets (queue, scope, whose, level, at, opens_at)
SELECT
    value ->> 0, 'partition', substr(value ->> 1, length(value ->> 0) + 2), value ->> 2, value ->> 3,
    iif(EXISTS (SELECT 1 FROM dibs_tasks WHERE partition = value ->> 1 AND state = 'pending'), value ->> 4, NULL)
FROM json_each(?);
