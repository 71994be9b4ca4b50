-- name: days
-- The days that have finished tasks, oldest first. Takes nothing. Returns a JSON array of (day, lowest, highest,
-- pruned).
SELECT json_group_array(json_array(day, lowest, highest, pruned)) FROM (SELECT * FROM dibs_days ORDER BY day);

-- name: days_below
-- Days that have finished tasks below an id. Takes the id. Returns a JSON array of days.
SELECT json_group_array(day) FROM dibs_days WHERE lowest < ?;

-- name: save_day
-- Widen the range of ids of a day. Takes day, lowest id, highest id. New rows may be prunable: forget what was pruned.
INSERT INTO dibs_days (day, lowest, highest, pruned) VALUES (?, ?, ?, '[]')
ON CONFLICT (day) DO UPDATE SET
    lowest = min(lowest, excluded.lowest), highest = max(highest, excluded.highest), pruned = '[]';

-- name: pruned_day
-- Remember that nothing is left to prune. Takes the day and the queues that were pruned (JSON array).
UPDATE dibs_days SET pruned = ?2 WHERE day = ?1;

-- name: drop_empty_day
-- Forget a day that has no finished tasks left. Takes the day.
DELETE FROM dibs_days WHERE day = ?1 AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE day = ?1);

-- name: finished_of_day
-- Some finished tasks of a day, upwards by id. Takes the day, the id to begin after, how many. Returns a JSON array of
-- (id, track, state). Reads a range of the primary key.
SELECT json_group_array(json_array(id, track, state))
FROM (SELECT id, track, state FROM dibs_finished WHERE day = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: dead_of_day
-- Some dead tasks of a day, upwards by id. Takes the day, the id to begin after, how many. Returns a JSON array of (id,
-- track, state). Reads a range of dibs_dead_days.
SELECT json_group_array(json_array(id, track, state))
FROM (SELECT id, track, state FROM dibs_dead WHERE day = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: next_dead_day
-- The first day after another that has dead tasks. Takes a day, the last that can be. Returns a day or NULL: what is no
-- number sorts after all days. One seek in dibs_dead_days.
SELECT min(day) FROM dibs_dead WHERE day > ?1 AND day <= ?2;

-- name: dead_beyond
-- Dead tasks whose day can't be one. Takes the last day that can be, how many. Returns a JSON array of (id, day). Reads
-- the end of dibs_dead_days.
SELECT json_group_array(json_array(id, day)) FROM (SELECT id, day FROM dibs_dead WHERE day > ?1 ORDER BY day, id LIMIT ?2);
