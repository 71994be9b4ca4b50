-- name: schedule
-- One schedule, locked. Takes its name. Returns name, record (JSON).
SELECT name, record FROM {schema}.schedules WHERE name = $1 FOR UPDATE;

-- name: schedules
-- All schedules by name. Takes nothing. Returns name, record (JSON).
SELECT name, record FROM {schema}.schedules ORDER BY name;

-- name: save_schedule
-- Save a schedule. Takes name, next_fire_at, paused, record (JSON).
INSERT INTO {schema}.schedules (name, next_fire_at, paused, record) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET
    next_fire_at = excluded.next_fire_at, paused = excluded.paused, record = excluded.record;

-- name: delete_schedule
-- Delete a schedule. Takes its name.
DELETE FROM {schema}.schedules WHERE name = $1;

-- name: schedules_due
-- Schedules that are due, earliest first, locked, without those that another process is firing. Takes now, limit, names
-- to skip. Returns name, record (JSON). Reads a range of `fires`.
SELECT name, record FROM {schema}.schedules
WHERE NOT paused AND next_fire_at <= $1::bigint AND name <> ALL ($3::text[])
ORDER BY next_fire_at, name LIMIT $2::int FOR UPDATE SKIP LOCKED;

-- name: next_fire
-- When the next schedule is due. Takes names to skip. Returns an instant, or no row. The first entry of `fires`
-- that is not skipped.
SELECT next_fire_at FROM {schema}.schedules WHERE NOT paused AND name <> ALL ($1::text[])
ORDER BY next_fire_at, name LIMIT 1;
