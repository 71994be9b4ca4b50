-- When the next schedule is due, some left out. Takes their names (JSON array). Returns an instant, or no row. The first
-- entry of dibs_fires that is not left out.
SELECT next_fire_at FROM dibs_schedules INDEXED BY dibs_fires
WHERE paused = 0 AND name NOT IN (SELECT value FROM json_each(?)) ORDER BY next_fire_at, name LIMIT 1;
