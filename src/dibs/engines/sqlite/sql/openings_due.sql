-- Partitions of a queue that have got a token. Takes the queue, now, how many. Returns partitions (JSON array). Reads a
-- range of dibs_openings.
SELECT json_group_array(whose)
FROM (
    SELECT whose FROM dibs_buckets INDEXED BY dibs_openings
    WHERE queue = ?1 AND opens_at IS NOT NULL AND opens_at <= ?2 ORDER BY opens_at LIMIT ?3
);
