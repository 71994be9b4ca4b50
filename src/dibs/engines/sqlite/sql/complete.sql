-- name: settle_state
-- What a settlement must know first. Takes nothing. Returns the generation, and 1 if any task waits for another: if
-- none does, completions need no follow-ups. One seek in dibs_needed.
SELECT generation, EXISTS (SELECT 1 FROM dibs_edges INDEXED BY dibs_needed WHERE open = 1) FROM dibs_store;

-- name: fence
-- Which leases are current. Takes a JSON object: ids, and the number of each lease. Returns a JSON array of (id, track,
-- partition, batch) of the runs that may be settled. Seeks by primary key.
SELECT json_group_array(json_array(r.id, r.track, r.partition, r.batch))
FROM json_each(?) AS run CROSS JOIN dibs_running AS r WHERE r.id = run.key AND r.lease = run.value;

-- name: complete
-- Move completed runs to the finished tasks. Takes a JSON object (ids, and for each the number of its lease and the result),
-- the day, now. The fence is in the statement. Appends at the end of today's rows.
INSERT INTO dibs_finished (
    day, id, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, result,
    args, facts, workflow, created_at
)
SELECT
    ?2, t.id, t.track, 'completed', t.rank, t.ready_at, r.lease, l.started_at, ?3, l.worker, l.sequence,
    t.version + r.version + l.version, r.progress, run.value ->> 1, t.args, t.facts, t.workflow, t.created_at
FROM json_each(?1) AS run CROSS JOIN dibs_running AS r CROSS JOIN dibs_leases AS l CROSS JOIN dibs_tasks AS t
WHERE r.id = run.key AND r.lease = run.value ->> 0 AND l.batch = r.batch AND t.id = r.id;

-- name: batches
-- The batches of running tasks. Takes ids (JSON array). Returns a JSON array of batches, one for each task. Seeks by primary
-- key.
SELECT json_group_array(r.batch)
FROM json_each(?) AS wanted CROSS JOIN dibs_running AS r WHERE r.id = wanted.value;

-- name: end_runs
-- Delete runs that have ended. Takes ids (JSON array).
DELETE FROM dibs_running WHERE id IN (SELECT value FROM json_each(?));

-- name: end_lease
-- Delete a lease if so many runs are all that it holds. Takes the batch, the number of runs that have ended.
DELETE FROM dibs_leases WHERE batch = ? AND held = ?;

-- name: release
-- Count runs that have ended. Takes a JSON array of (batch, number of runs).
UPDATE dibs_leases SET held = held - run.value ->> 1
FROM (SELECT value FROM json_each(?)) AS run
WHERE batch = run.value ->> 0;

-- name: delete_leases
-- Delete leases that hold nothing any more. Takes the same.
DELETE FROM dibs_leases WHERE batch IN (SELECT value ->> 0 FROM json_each(?)) AND held <= 0;
