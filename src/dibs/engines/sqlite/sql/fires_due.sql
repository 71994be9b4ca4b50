-- Schedules that are due, longest ago first. Takes now, how many. Returns a JSON array of records (JSON text each). Reads a
-- range of dibs_fires.
SELECT json_group_array(record)
FROM (
    SELECT record FROM dibs_schedules INDEXED BY dibs_fires
    WHERE paused = 0 AND next_fire_at <= ?1 ORDER BY next_fire_at, name LIMIT ?2
);
