-- name: days
-- The days that have finished tasks, oldest first. Takes nothing. Returns a JSON array of (day, lowest, highest,
-- pruned).
SELECT json_group_array(json_array(day, lowest, highest, pruned)) FROM (SELECT * FROM dibs_days ORDER BY day);

-- name: pruned
-- The queues that have nothing left to delete on a day. Takes the day. Returns a JSON array of (day, queues as JSON
-- text).
SELECT json_group_array(json_array(day, pruned)) FROM dibs_days WHERE day = ?;

-- name: next_finished_day
-- The first day that has finished tasks, from this one on. Takes the day. Returns a day, or none (JSON array).
SELECT json_group_array(day) FROM (SELECT day FROM dibs_days WHERE day >= ? ORDER BY day LIMIT 1);

-- name: save_day
-- Widen the range of ids of a day. Takes day, lowest id, highest id. Resets `pruned`: new rows may have expired.
INSERT INTO dibs_days (day, lowest, highest, pruned) VALUES (?, ?, ?, '[]')
ON CONFLICT (day) DO UPDATE SET
    lowest = min(lowest, excluded.lowest), highest = max(highest, excluded.highest), pruned = '[]';

-- name: pruned_day
-- Save that nothing is left to delete. Takes the day and the queues that were pruned (JSON array).
UPDATE dibs_days SET pruned = ?2 WHERE day = ?1;

-- name: drop_empty_day
-- Delete a day that has no finished tasks left. Takes the day.
DELETE FROM dibs_days WHERE day = ?1 AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE day = ?1);

-- name: finished_of_day
-- Some finished tasks of a day, upwards by id. Takes the day, the id to start after or NULL, limit. Returns a JSON array of
-- (id, track, state). Reads a range of the primary key.
SELECT json_group_array(json_array(id, track, state))
FROM (SELECT id, track, state FROM dibs_finished WHERE day = ?1 AND id > coalesce(?2, '') ORDER BY id LIMIT ?3);

-- name: dead_of_day
-- Some dead tasks of a day, upwards by id. Takes the day, the id to start after, limit. Returns a JSON array of (id,
-- track, state). Reads a range of dibs_dead_days.
SELECT json_group_array(json_array(id, track, state))
FROM (SELECT id, track, state FROM dibs_dead WHERE day = ?1 AND id > coalesce(?2, '') ORDER BY id LIMIT ?3);

-- name: next_dead_day
-- The first day that has dead tasks, from this one on. Takes the day. Returns a day, or none (JSON array): a value that
-- is not a number sorts after all days. One seek in dibs_dead_days.
SELECT json_group_array(day) FROM (SELECT day FROM dibs_dead WHERE day BETWEEN ? AND 1000000000 ORDER BY day LIMIT 1);

-- name: dead_beyond
-- Dead tasks whose day is invalid. Takes the last valid day, limit. Returns a JSON array of (id, day). Reads the end of
-- dibs_dead_days.
SELECT json_group_array(json_array(id, day)) FROM (SELECT id, day FROM dibs_dead WHERE day > ?1 ORDER BY day, id LIMIT ?2);
