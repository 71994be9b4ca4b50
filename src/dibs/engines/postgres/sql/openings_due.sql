-- Partitions that may have got a token. Takes the queue, now, how many. Returns whose. A range of `openings`.
SELECT whose FROM dibs.buckets
WHERE queue = $1 AND opens_at IS NOT NULL AND opens_at <= $2::bigint ORDER BY opens_at LIMIT $3::int;
