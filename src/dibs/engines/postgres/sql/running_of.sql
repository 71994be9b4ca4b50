-- Running tasks of some workers, locked, but for those that somebody is at. Takes workers, how many, all streams, ids
-- to pass over. Returns the columns of find.sql. Reads `leases` for each stream, all running tasks: asked only when a
-- worker is lost. What is found must still be so once it is locked: said in a CASE, as in expired.sql, so that ids are
-- looked up.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM unnest($3::int[]) AS s (stream)
    CROSS JOIN LATERAL (
        SELECT id FROM dibs.tasks
        WHERE stream = s.stream AND state = 'running' AND worker = ANY ($1::text[])
          AND (id IN (SELECT unnest($4::uuid[]))) IS NOT TRUE
        ORDER BY lease_expires_at LIMIT $2::int
    ) AS l
    LIMIT $2::int
)) AND CASE WHEN t.state = 'running' THEN t.worker = ANY ($1::text[]) END
ORDER BY t.id FOR UPDATE SKIP LOCKED;
