-- Idempotency keys whose window is over. Takes now; held_until, queue and key to begin after; how many.
-- Returns a JSON array of (held_until, queue, key, 1 if its task is not unfinished). Reads a range of dibs_keys_held.
SELECT json_group_array(json_array(
    held_until, queue, key, NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE id = task)
))
FROM (
    SELECT held_until, queue, key, task FROM dibs_keys INDEXED BY dibs_keys_held
    WHERE held_until <= ?1 AND (held_until, queue, key) > (?2, ?3, ?4)
    ORDER BY held_until, queue, key LIMIT ?5
);
