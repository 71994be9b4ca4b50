-- Keep leases and record progress. Takes a JSON array of (id, lease number, expires at, progress or NULL).
-- The fence is in the statement. Moves entries within dibs_leases.
UPDATE dibs_tasks SET
    lease_expires_at = run.value ->> 2,
    progress = coalesce(run.value ->> 3, progress)
FROM (SELECT value FROM json_each(?)) AS run
WHERE id = run.value ->> 0 AND lease = run.value ->> 1 AND state = 'running';
