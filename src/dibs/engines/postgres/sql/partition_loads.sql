-- How full partitions are. Takes partitions with their queue's name in front, the queue. Returns partition, running
-- tasks, level and at of its bucket. A range of `partitions` and a seek each.
SELECT
    w.partition,
    (SELECT count(*) FROM dibs.tasks AS t WHERE t.partition = w.partition AND t.state = 'running') AS running,
    b.level,
    b.at
FROM unnest($1::text[]) AS w (partition)
LEFT JOIN dibs.buckets AS b
    ON b.queue = $2 AND b.scope = 'partition' AND b.whose = substr(w.partition, length($2) + 2) AND b.level >= 0;
