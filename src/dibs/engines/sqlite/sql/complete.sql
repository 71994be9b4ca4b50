-- name: settle_state
-- What a settlement must know first. Takes nothing. Returns the generation, and 1 if any task waits for another: if
-- none does, completions need no follow-ups. One seek in dibs_needed.
SELECT generation, EXISTS (SELECT 1 FROM dibs_edges INDEXED BY dibs_needed WHERE open = 1) FROM dibs_store;

-- name: fence
-- Which leases are current. Takes a JSON array of (id, lease number, …). Returns a JSON array of (position, track,
-- partition, id) of the runs that may be settled. Seeks by primary key.
SELECT json_group_array(json_array(run.key, t.track, t.partition, t.id))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';

-- name: complete
-- Move completed runs to the finished tasks. Takes a JSON array of (id, lease number, result), the day, now. The fence
-- is in the statement. Appends at the end of today's rows.
INSERT INTO dibs_finished (
    day, id, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, result,
    args, facts, workflow, created_at
)
SELECT
    ?2, t.id, t.track, 'completed', t.rank, t.ready_at, t.lease, t.started_at, ?3, t.worker, t.sequence, t.version,
    t.progress, run.value ->> 2, t.args, t.facts, t.workflow, t.created_at
FROM json_each(?1) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';

-- name: complete_delete
-- Delete completed runs from the unfinished tasks. Takes the same JSON array as `complete`, which has compared their
-- leases in this transaction and copied exactly these rows: comparing again would cost half as much again.
DELETE FROM dibs_tasks WHERE id IN (SELECT value ->> 0 FROM json_each(?)) AND state = 'running';
