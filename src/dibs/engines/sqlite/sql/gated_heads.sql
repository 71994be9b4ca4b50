-- The best pending tasks of partitions, one for each stream and share, as far as they are gated and a slot is free.
-- Takes partitions with their queue's name in front (JSON array), the highest number that may run (NULL: any), ids to
-- pass over (JSON array).
-- Returns a JSON array of (id, stream, share). Some seeks in dibs_partitions for each group. Two of them find the next
-- group, because SQLite seeks "greater than (stream, share)" from the beginning of the last one, which may be deep.
WITH RECURSIVE heads (partition, id) AS (
    SELECT
        wanted.value,
        (
            SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
            WHERE t.partition = wanted.value AND t.state = 'pending'
              AND t.id NOT IN (SELECT value FROM json_each(?3))
            ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
        )
    FROM json_each(?1) AS wanted
    WHERE ?2 IS NULL
       OR (SELECT count(*) FROM dibs_tasks AS r WHERE r.partition = wanted.value AND r.state = 'running') < ?2
    UNION ALL
    SELECT
        heads.partition,
        coalesce(
            (
                SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
                WHERE t.partition = heads.partition AND t.state = 'pending'
                  AND t.stream = last.stream AND t.share > last.share
                  AND t.id NOT IN (SELECT value FROM json_each(?3))
                ORDER BY t.share, t.rank, t.id LIMIT 1
            ),
            (
                SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
                WHERE t.partition = heads.partition AND t.state = 'pending' AND t.stream > last.stream
                  AND t.id NOT IN (SELECT value FROM json_each(?3))
                ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
            )
        )
    FROM heads CROSS JOIN dibs_tasks AS last WHERE last.id = heads.id
)
SELECT json_group_array(json_array(t.id, t.stream, t.share))
FROM heads CROSS JOIN dibs_tasks AS t WHERE t.id = heads.id AND t.gated = 1;
