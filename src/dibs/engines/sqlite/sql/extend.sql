-- name: current_leases
-- Which leases are current. Takes a JSON array of (id, lease number). Returns a JSON array of (position, facts if the
-- task has been asked to stop, id). Seeks by primary key.
SELECT json_group_array(json_array(run.key, iif(t.cancel, t.facts, NULL), t.id))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';

-- name: extend
-- Extend leases and record progress. Takes a JSON array of (id, lease number, expires at, progress or NULL). The fence
-- is in the statement. Moves entries within dibs_leases.
UPDATE dibs_tasks SET
    version = version + 1,
    lease_expires_at = run.value ->> 2,
    progress = coalesce(run.value ->> 3, progress)
FROM (SELECT value FROM json_each(?)) AS run
WHERE id = run.value ->> 0 AND lease = run.value ->> 1 AND state = 'running';
