-- A schedule as it is now. Takes name, next_fire_at, paused, record (JSON).
INSERT INTO dibs.schedules (name, next_fire_at, paused, record) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET
    next_fire_at = excluded.next_fire_at, paused = excluded.paused, record = excluded.record;
