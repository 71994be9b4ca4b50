-- name: current_leases
-- Which leases are current. Takes a JSON array of (id, lease number). Returns a JSON array of (position, facts if the
-- task has been asked to stop, id). Seeks by primary key.
SELECT json_group_array(json_array(
    run.key, iif(r.cancel, (SELECT facts FROM dibs_tasks WHERE dibs_tasks.id = r.id), NULL), r.id
))
FROM json_each(?) AS run CROSS JOIN dibs_running AS r WHERE r.id = run.value ->> 0 AND r.lease = run.value ->> 1;

-- name: extend_leases
-- Extend leases all of whose tasks are extended alike. Takes a JSON array of (id, lease number, expires at, progress or
-- NULL), each task once. The fence is in the statement. Writes one row for each batch.
UPDATE dibs_leases SET expires_at = alike.expires_at, version = version + 1
FROM (
    SELECT r.batch, min(run.value ->> 2) AS expires_at, count(*) AS n
    FROM json_each(?) AS run CROSS JOIN dibs_running AS r
    WHERE r.id = run.value ->> 0 AND r.lease = run.value ->> 1
    GROUP BY r.batch HAVING min(run.value ->> 2) = max(run.value ->> 2)
) AS alike
WHERE dibs_leases.batch = alike.batch AND held = alike.n;

-- name: extend
-- After `extend_leases`: extend tasks otherwise than their batch, and record progress. Takes the same. The fence is in the
-- statement. Writes the rows of tasks that have something of their own.
UPDATE dibs_running SET
    version = version + 1,
    expires_at = nullif(run.value ->> 2, (SELECT l.expires_at FROM dibs_leases AS l WHERE l.batch = dibs_running.batch)),
    progress = coalesce(run.value ->> 3, progress)
FROM (SELECT value FROM json_each(?)) AS run
WHERE id = run.value ->> 0 AND lease = run.value ->> 1 AND (
    run.value ->> 3 IS NOT NULL OR expires_at IS NOT NULL
    OR run.value ->> 2 <> (SELECT l.expires_at FROM dibs_leases AS l WHERE l.batch = dibs_running.batch)
);
