-- The partitions of a queue, in order. Takes the queue's name and a space, the partition to begin after, how many.
-- Returns partitions with the queue's name in front. One seek in `partitions` each.
WITH RECURSIVE found (partition, n) AS (
    (SELECT t.partition, 1 FROM dibs.tasks AS t WHERE t.partition > $2 ORDER BY t.partition LIMIT 1)
    UNION ALL
    SELECT h.partition, found.n + 1
    FROM found CROSS JOIN LATERAL (
        SELECT t.partition FROM dibs.tasks AS t WHERE t.partition > found.partition ORDER BY t.partition LIMIT 1
    ) AS h
    WHERE found.n < $3::int AND starts_with(h.partition, $1)
)
SELECT partition FROM found WHERE starts_with(partition, $1);
