-- Idempotency keys whose window is over. Takes now; held_until, queue and key to begin after; how many. Returns
-- held_until, queue, key, and whether its task is not unfinished. Reads a range of `keys_held`; keys that somebody is
-- at are left out.
SELECT k.held_until, k.queue, k.key, NOT EXISTS (SELECT 1 FROM dibs.tasks AS t WHERE t.id = k.task) AS free
FROM dibs.keys AS k
WHERE k.held_until <= $1::bigint AND (k.held_until, k.queue, k.key) > ($2::bigint, $3::text, $4::text)
ORDER BY k.held_until, k.queue, k.key LIMIT $5::int FOR UPDATE OF k SKIP LOCKED;
