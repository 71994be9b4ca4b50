-- Schedules that are due, earliest first, locked, but for those that somebody else is firing. Takes now, how many,
-- names to pass over. Returns name, record (JSON). Reads a range of `fires`.
SELECT name, record FROM dibs.schedules
WHERE NOT paused AND next_fire_at <= $1::bigint AND name <> ALL ($3::text[])
ORDER BY next_fire_at, name LIMIT $2::int FOR UPDATE SKIP LOCKED;
