-- What workers did. Takes the first and last minute, and a queue or NULL for all. Returns minutes and records (JSON),
-- oldest first.
SELECT minute, record FROM dibs.minutes
WHERE minute BETWEEN $1::bigint AND $2::bigint AND ($3::text IS NULL OR queue = $3)
ORDER BY minute, worker, queue, tier;
