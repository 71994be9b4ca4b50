-- The next partitions to get a token that have pending tasks. Takes the queue, how many. Returns level, at.
SELECT b.level, b.at FROM dibs.buckets AS b
WHERE b.queue = $1 AND b.opens_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM dibs.tasks AS t WHERE t.partition = $1 || ' ' || b.whose AND t.state = 'pending'
)
ORDER BY b.opens_at LIMIT $2::int;
