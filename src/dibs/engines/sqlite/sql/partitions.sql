-- The partitions of a queue, in order. Takes the queue, the partition to begin after (with the queue's name in front), how
-- many. Returns partitions with the queue's name in front (JSON array). One seek in dibs_partitions each.
WITH RECURSIVE found (partition) AS (
    SELECT (SELECT min(partition) FROM dibs_tasks WHERE partition > ?2 AND partition < ?1 || '!')
    UNION ALL
    SELECT (SELECT min(t.partition) FROM dibs_tasks AS t WHERE t.partition > found.partition AND t.partition < ?1 || '!')
    FROM found WHERE found.partition IS NOT NULL
    LIMIT ?3
)
SELECT json_group_array(partition) FROM found WHERE partition IS NOT NULL;
