-- The best pending tasks of partitions, one for each stream and share, as far as they are gated and a slot is free.
-- Takes partitions with their queue's name in front (JSON array), the highest number that may run (NULL: any).
-- Returns a JSON array of (id, stream, share). Two seeks in dibs_partitions for each, and one for each further group: the
-- plus sign takes the affinity off a column, without which SQLite seeks by stream alone.
WITH RECURSIVE heads (partition, id) AS (
    SELECT
        wanted.value,
        (
            SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
            WHERE t.partition = wanted.value AND t.state = 'pending'
            ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
        )
    FROM json_each(?1) AS wanted
    WHERE ?2 IS NULL
       OR (SELECT count(*) FROM dibs_tasks AS r WHERE r.partition = wanted.value AND r.state = 'running') < ?2
    UNION ALL
    SELECT
        heads.partition,
        (
            SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
            WHERE t.partition = heads.partition AND t.state = 'pending'
              AND (t.stream, t.share) > (last.stream, +last.share)
            ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
        )
    FROM heads CROSS JOIN dibs_tasks AS last WHERE last.id = heads.id
)
SELECT json_group_array(json_array(t.id, t.stream, t.share))
FROM heads CROSS JOIN dibs_tasks AS t WHERE t.id = heads.id AND t.gated = 1;
