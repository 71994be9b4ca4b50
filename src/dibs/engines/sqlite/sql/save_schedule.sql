-- A schedule as it is now. Takes name, next_fire_at, paused, record (JSON).
REPLACE INTO dibs_schedules (name, next_fire_at, paused, record) VALUES (?, ?, ?, ?);
