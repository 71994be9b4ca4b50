-- Schedules that are due, earliest first, locked, but for those that somebody else is firing. Takes now, how many.
-- Returns records (JSON). Reads a range of `fires`.
SELECT record FROM dibs.schedules WHERE NOT paused AND next_fire_at <= $1::bigint
ORDER BY next_fire_at, name LIMIT $2::int FOR UPDATE SKIP LOCKED;
