-- Openings that have come, or that nobody waits for. Takes partitions (JSON array), the queue.
UPDATE dibs_buckets SET opens_at = NULL
WHERE queue = ?2 AND scope = 'partition' AND whose IN (SELECT value FROM json_each(?1));
