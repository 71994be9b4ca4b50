-- Put partitions in order. Takes partitions that have room, partitions that have none, and ids to pass over. Of each
-- stream and share of the former the best pending task comes forward, all others stay or go behind. Reads the
-- partitions' pending tasks group by group, skipping to the next one.
WITH RECURSIVE heads (partition, stream, share, id) AS (
    SELECT w.partition, h.stream, h.share, h.id
    FROM unnest($1::text[]) AS w (partition)
    CROSS JOIN LATERAL (
        SELECT t.stream, t.share, t.id FROM dibs.tasks AS t
        WHERE t.partition = w.partition AND t.state = 'pending' AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
    ) AS h
    UNION ALL
    SELECT last.partition, h.stream, h.share, h.id
    FROM heads AS last
    CROSS JOIN LATERAL (
        SELECT t.stream, t.share, t.id FROM dibs.tasks AS t
        WHERE t.partition = last.partition AND t.state = 'pending' AND (t.stream, t.share) > (last.stream, last.share)
          AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
    ) AS h
), wrong AS MATERIALIZED (
    SELECT t.id, 1 AS gate FROM dibs.tasks AS t JOIN heads ON heads.id = t.id WHERE t.gate <> 1
    UNION ALL
    SELECT t.id, 2 FROM dibs.tasks AS t
    WHERE t.partition = ANY ($1::text[] || $2::text[]) AND t.state = 'pending' AND t.gate < 2
      AND t.id NOT IN (SELECT heads.id FROM heads) AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
)
UPDATE dibs.tasks AS t SET gate = wrong.gate FROM wrong WHERE t.id = wrong.id;
