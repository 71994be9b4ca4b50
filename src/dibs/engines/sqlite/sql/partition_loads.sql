-- How full partitions are. Takes partitions with their queue's name in front (JSON array), the queue. Returns a JSON
-- array of (partition, running tasks, level and at of its bucket or NULL). A range of dibs_partitions and a seek each.
SELECT json_group_array(json_array(
    wanted.value,
    (SELECT count(*) FROM dibs_tasks WHERE partition = wanted.value AND state = 'running'),
    b.level,
    b.at
))
FROM json_each(?1) AS wanted LEFT JOIN dibs_buckets AS b
    ON b.queue = ?2 AND b.scope = 'partition' AND b.whose = substr(wanted.value, length(?2) + 2);
