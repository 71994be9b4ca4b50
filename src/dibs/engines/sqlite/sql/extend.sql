-- name: current_leases
-- Which leases are current. Takes a JSON array of (id, lease number). Returns a JSON array of (position, facts if the
-- task has been asked to stop, batch, id). Seeks by primary key.
SELECT json_group_array(json_array(run.key, iif(t.cancel, t.facts, NULL), t.batch, t.id))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';

-- name: batch_sizes
-- How many tasks batches have. Takes batches (JSON array). Returns a JSON array of (batch, number). Reads a range of
-- dibs_batched for each.
SELECT json_group_array(json_array(value, (SELECT count(*) FROM dibs_tasks WHERE batch = value))) FROM json_each(?);

-- name: new_batch
-- Make a batch. Takes when its leases end. Returns its number.
INSERT INTO dibs_batches (expires_at) VALUES (?) RETURNING batch;

-- name: leave_batch
-- Have tasks leave their batch, with the end that it gives them. Takes the batch, ids of those that stay (JSON array).
UPDATE dibs_tasks SET
    version = version + 1,
    lease_expires_at = (SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = ?1),
    batch = NULL
WHERE batch = ?1 AND id NOT IN (SELECT value FROM json_each(?2));

-- name: extend_batches
-- Extend the leases of batches. Takes a JSON array of (batch, expires at).
UPDATE dibs_batches SET expires_at = run.value ->> 1
FROM (SELECT value FROM json_each(?)) AS run
WHERE batch = run.value ->> 0;

-- name: extend
-- Extend leases and record progress. Takes a JSON array of (id, lease number, expires at, batch, progress or NULL). The
-- fence is in the statement. Moves entries within dibs_leases.
UPDATE dibs_tasks SET
    version = version + 1,
    lease_expires_at = run.value ->> 2,
    batch = run.value ->> 3,
    progress = coalesce(run.value ->> 4, progress)
FROM (SELECT value FROM json_each(?)) AS run
WHERE id = run.value ->> 0 AND lease = run.value ->> 1 AND state = 'running';
