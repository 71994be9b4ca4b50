-- Tenants of a fair queue that have pending tasks, those that are served next first. Takes the queue, its clock, how
-- many. Returns share, tag, pending.
SELECT share, tag, pending FROM dibs.shares WHERE queue = $1 AND pending > 0
ORDER BY greatest(tag, $2::bigint), share LIMIT $3::int;
