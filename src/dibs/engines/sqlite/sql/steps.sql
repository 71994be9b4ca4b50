-- name: prompt_steps
-- Stored prompt steps, oldest first. Takes limit, numbers to skip (JSON array). Returns a JSON array of (n, step as JSON
-- text). Reads the beginning of dibs_prompt_steps.
SELECT json_group_array(json_array(n, step))
FROM (
    SELECT n, step FROM dibs_steps
    WHERE id IS NULL AND n NOT IN (SELECT value FROM json_each(?2)) ORDER BY n LIMIT ?1
);

-- name: save_steps
-- Prompt steps that have come further. Takes a JSON array of (n, step as JSON text).
REPLACE INTO dibs_steps (n, step) SELECT value ->> 0, value ->> 1 FROM json_each(?);

-- name: add_steps
-- Prompt steps that are not finished. Takes them (JSON array of JSON texts); they get the next numbers, in order.
INSERT INTO dibs_steps (step) SELECT value FROM json_each(?);

-- name: delete_steps
-- Delete finished prompt steps. Takes numbers (JSON array).
DELETE FROM dibs_steps WHERE n IN (SELECT value FROM json_each(?));

-- name: step
-- A background step. Takes its id. Returns a JSON array of (n, step as JSON text), empty if there is no such one.
SELECT json_group_array(json_array(n, step)) FROM dibs_steps WHERE id = ?;

-- name: step_to_change
-- The same: no other transaction writes.
SELECT json_group_array(json_array(n, step)) FROM dibs_steps WHERE id = ?;

-- name: open_steps
-- Background steps that have not ended, oldest first. Takes limit, numbers to skip (JSON array). Returns the same. Reads
-- the beginning of dibs_open_steps.
SELECT json_group_array(json_array(n, step))
FROM (
    SELECT n, step FROM dibs_steps
    WHERE id IS NOT NULL AND ended_at IS NULL AND n NOT IN (SELECT value FROM json_each(?2)) ORDER BY n LIMIT ?1
);

-- name: newest_steps
-- Background steps downwards by id. Takes the id to start below (NULL: the newest), limit. Returns the same.
SELECT json_group_array(json_array(n, step))
FROM (SELECT n, step FROM dibs_steps WHERE id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2);

-- name: first_steps
-- Steps of any kind, oldest first. Takes limit. Returns the same.
SELECT json_group_array(json_array(n, step)) FROM (SELECT n, step FROM dibs_steps ORDER BY n LIMIT ?1);

-- name: add_step
-- A new background step. Takes its id, the step (JSON). Adds nothing if one with this id exists.
INSERT OR IGNORE INTO dibs_steps (id, step) VALUES (?, ?);

-- name: save_step
-- Save how far a background step has come. Takes its number, ended_at, the step (JSON).
UPDATE dibs_steps SET ended_at = ?2, step = ?3 WHERE n = ?1;

-- name: prune_steps
-- Delete background steps that ended long ago. Takes an instant (inclusive), limit. Reads only the oldest steps.
DELETE FROM dibs_steps
WHERE id IN (SELECT id FROM dibs_steps WHERE id IS NOT NULL ORDER BY id LIMIT ?2) AND ended_at <= ?1;
