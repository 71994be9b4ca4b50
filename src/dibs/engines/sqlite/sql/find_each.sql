-- Tasks by id, wherever they are, for when one of them spoils the arrays of find.sql. Takes ids (JSON array). Returns rows
-- (the columns of `Row`). Seeks as find.sql does.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at,
    t.started_at, t.worker, t.sequence, t.progress, NULL, NULL, t.args, t.facts
FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
UNION ALL
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
    t.started_at, t.worker, t.sequence, t.progress, t.finished_at, NULL, t.args, t.facts
FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
UNION ALL
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
    t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result, t.args, t.facts
FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value;
