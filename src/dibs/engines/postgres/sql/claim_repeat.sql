-- What a claim gave before. Takes worker, sequence, all streams. Returns the columns of find.sql, by id. Visits the
-- running tasks through `leases`: repeats are rare, running tasks few.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.stream = ANY ($3::int[]) AND t.state = 'running' AND t.worker = $1 AND t.sequence = $2 ORDER BY t.id;
