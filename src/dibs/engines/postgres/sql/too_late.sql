-- Waiting tasks that have expired, longest ago first, locked. Takes now, how many, the instant to look from, ids to
-- pass over. Returns the columns of find.sql. Reads a range of `expiries`.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.expires_at IS NOT NULL AND t.state <> 'running' AND t.expires_at >= $3::bigint AND t.expires_at <= $1::bigint
  AND (t.id IN (SELECT unnest($4::uuid[]))) IS NOT TRUE
ORDER BY t.expires_at, t.id LIMIT $2::int FOR UPDATE SKIP LOCKED;
