-- Waiting tasks whose rank has to be computed anew, locked. Takes now, how many, ids to pass over. Returns the columns of find.sql.
-- Reads a range of `reranks`.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.rerank_at IS NOT NULL AND t.state <> 'running' AND t.rerank_at <= $1::bigint
  AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
ORDER BY t.rerank_at, t.id LIMIT $2::int FOR UPDATE;
