-- When partitions that have no token will have one. Takes queues, partitions, opens_at (NULL: it has some).
UPDATE dibs.buckets AS b SET opens_at = new.opens_at
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS new (queue, whose, opens_at)
WHERE b.queue = new.queue AND b.scope = 'partition' AND b.whose = new.whose
  AND b.opens_at IS DISTINCT FROM new.opens_at;
