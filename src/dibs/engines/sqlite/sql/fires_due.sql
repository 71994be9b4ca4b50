-- Schedules that are due, longest ago first. Takes now, how many, names to pass over (JSON array). Returns a JSON
-- array of (name, record as JSON text). Reads a range of dibs_fires.
SELECT json_group_array(json_array(name, record))
FROM (
    SELECT name, record FROM dibs_schedules INDEXED BY dibs_fires
    WHERE paused = 0 AND next_fire_at <= ?1 AND name NOT IN (SELECT value FROM json_each(?3))
    ORDER BY next_fire_at, name LIMIT ?2
);
