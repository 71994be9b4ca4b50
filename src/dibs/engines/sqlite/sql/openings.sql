-- Partitions of a queue that will get a token, soonest first. Takes the queue, how many. Returns a JSON array of
-- (partition, level, at, 1 if tasks are pending there). Reads a range of dibs_openings, and one seek each.
SELECT json_group_array(json_array(
    whose, level, at,
    EXISTS (SELECT 1 FROM dibs_tasks WHERE partition = queue || ' ' || whose AND state = 'pending')
))
FROM (
    SELECT queue, whose, level, at FROM dibs_buckets INDEXED BY dibs_openings
    WHERE queue = ?1 AND opens_at IS NOT NULL ORDER BY opens_at LIMIT ?2
);
