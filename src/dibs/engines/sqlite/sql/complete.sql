-- Completed runs move to the finished tasks. Takes a JSON array of (id, lease number, result), the day, now.
-- The fence is in the statement. Appends at the end of today's rows.
INSERT INTO dibs_finished (
    day, id, stream, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, progress, result, args,
    facts, workflow
)
SELECT
    ?2, t.id, t.stream, 'completed', t.rank, t.ready_at, t.lease, t.started_at, ?3, t.worker, t.sequence, t.progress,
    run.value ->> 2, t.args, t.facts, t.workflow
FROM json_each(?1) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';
