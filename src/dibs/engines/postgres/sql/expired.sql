-- Running tasks whose lease has ended by an instant, longest ago first, locked, but for those that somebody is at. Takes
-- it, how many, all streams, the expiry to begin at, ids to pass over. Returns the columns of find.sql. Reads a range of
-- `leases` for each stream. What is found must still be so once it is locked: said in a CASE, which no index can be used
-- for, since the planner would read all of `leases` again instead of looking up a few ids.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM unnest($3::int[]) AS s (stream)
    CROSS JOIN LATERAL (
        SELECT id, lease_expires_at FROM dibs.tasks
        WHERE stream = s.stream AND state = 'running' AND lease_expires_at <= $1::bigint
          AND lease_expires_at >= $4::bigint AND (id IN (SELECT unnest($5::uuid[]))) IS NOT TRUE
        ORDER BY lease_expires_at, id LIMIT $2::int
    ) AS l
    ORDER BY l.lease_expires_at, l.id LIMIT $2::int
)) AND CASE WHEN t.state = 'running' THEN t.lease_expires_at <= $1::bigint END
ORDER BY t.lease_expires_at, t.id FOR UPDATE SKIP LOCKED;
