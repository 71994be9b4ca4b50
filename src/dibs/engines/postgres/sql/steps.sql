-- name: prompt_steps
-- Stored prompt steps, oldest first, locked, without those that are locked already. Takes limit, numbers to skip.
-- Returns n, step (JSON). Reads the beginning of `prompt_steps`.
SELECT n, step FROM {schema}.steps WHERE id IS NULL AND (n IN (SELECT unnest($2::bigint[]))) IS NOT TRUE
ORDER BY n LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: has_prompt_steps
-- Whether prompt steps are left. Takes numbers to skip. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM {schema}.steps WHERE id IS NULL AND (n IN (SELECT unnest($1::bigint[]))) IS NOT TRUE);

-- name: add_steps
-- Store unfinished prompt steps. Takes steps (JSON); they get the next numbers, in order.
INSERT INTO {schema}.steps (step)
SELECT new.step FROM unnest($1::bytea[]) WITH ORDINALITY AS new (step, k) ORDER BY new.k;

-- name: save_steps
-- Save how far prompt steps have come. Takes numbers, steps (JSON).
UPDATE {schema}.steps AS e SET step = new.step
FROM unnest($1::bigint[], $2::bytea[]) AS new (n, step) WHERE e.n = new.n;

-- name: delete_steps
-- Delete finished prompt steps. Takes numbers.
DELETE FROM {schema}.steps WHERE n = ANY ($1::bigint[]);

-- name: step
-- A background step. Takes its id. Returns n, step (JSON).
SELECT n, step FROM {schema}.steps WHERE id = $1;

-- name: step_to_change
-- A background step, locked until this transaction ends. Takes its id. Returns n, step (JSON).
SELECT n, step FROM {schema}.steps WHERE id = $1 FOR UPDATE;

-- name: open_steps
-- Background steps that have not ended, oldest first. Takes limit, numbers to skip. Returns n, step (JSON). Reads the
-- beginning of `open_steps`.
SELECT n, step FROM {schema}.steps
WHERE id IS NOT NULL AND ended_at IS NULL AND (n IN (SELECT unnest($2::bigint[]))) IS NOT TRUE ORDER BY n LIMIT $1::int;

-- name: newest_steps
-- Background steps downwards by id. Takes the id to start below (NULL: the newest), limit. Returns n, step (JSON).
SELECT n, step FROM {schema}.steps
WHERE id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY id DESC LIMIT $2::int;

-- name: first_steps
-- Steps of any kind, oldest first. Takes limit. Returns n, step (JSON).
SELECT n, step FROM {schema}.steps ORDER BY n LIMIT $1::int;

-- name: add_step
-- A new background step. Takes its id, the step (JSON). Adds nothing if one with this id exists.
INSERT INTO {schema}.steps (id, step) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: save_step
-- Save how far a background step has come. Takes its number, ended_at, the step (JSON).
UPDATE {schema}.steps SET ended_at = $2::bigint, step = $3 WHERE n = $1;

-- name: prune_steps
-- Delete background steps that ended long ago. Takes an instant (inclusive), limit. Reads only the oldest steps.
DELETE FROM {schema}.steps
WHERE id = ANY (ARRAY(SELECT id FROM {schema}.steps WHERE id IS NOT NULL ORDER BY id LIMIT $2::int))
  AND ended_at <= $1::bigint;
