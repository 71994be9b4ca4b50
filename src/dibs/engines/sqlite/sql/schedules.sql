-- name: schedule
-- One schedule. Takes its name. Returns a JSON array of (name, record as JSON text), empty if there is no such one.
SELECT json_group_array(json_array(name, record)) FROM dibs_schedules WHERE name = ?;

-- name: schedules
-- All schedules by name. Takes nothing. Returns a JSON array of (name, record as JSON text).
SELECT json_group_array(json_array(name, record)) FROM (SELECT * FROM dibs_schedules ORDER BY name);

-- name: save_schedule
-- Save a schedule. Takes name, next_fire_at, paused, record (JSON).
REPLACE INTO dibs_schedules (name, next_fire_at, paused, record) VALUES (?, ?, ?, ?);

-- name: delete_schedule
-- Delete a schedule. Takes its name.
DELETE FROM dibs_schedules WHERE name = ?;

-- name: schedules_due
-- Schedules that are due, longest ago first. Takes now, limit, names to skip (JSON array). Returns a JSON array of
-- (name, record as JSON text). Reads a range of dibs_fires.
SELECT json_group_array(json_array(name, record))
FROM (
    SELECT name, record FROM dibs_schedules INDEXED BY dibs_fires
    WHERE paused = 0 AND next_fire_at <= ?1 AND name NOT IN (SELECT value FROM json_each(?3))
    ORDER BY next_fire_at, name LIMIT ?2
);

-- name: next_fire
-- When the next schedule is due. Takes names to skip (JSON array). Returns an instant, or none (JSON array). The first
-- entry of dibs_fires that is not skipped.
SELECT json_group_array(next_fire_at)
FROM (
    SELECT next_fire_at FROM dibs_schedules INDEXED BY dibs_fires
    WHERE paused = 0 AND name NOT IN (SELECT value FROM json_each(?)) ORDER BY next_fire_at, name LIMIT 1
);
