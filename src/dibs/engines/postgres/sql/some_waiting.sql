-- Some waiting tasks of some streams, locked: pending ones, those that wait for their time, blocked ones. Takes
-- streams, how many, ids to pass over. Returns the columns of find.sql. Reads a range of `pending`, `gated`, `later` and `blocked` for
-- each stream.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t
WHERE t.id = ANY (ARRAY(
    SELECT w.id
    FROM unnest($1::int[]) AS s (stream)
    CROSS JOIN LATERAL (
        (
            SELECT p.id FROM dibs.tasks AS p
            WHERE p.stream = s.stream AND p.state = 'pending' AND p.gate < 2
              AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM dibs.tasks AS p
            WHERE p.stream = s.stream AND p.state = 'pending' AND p.gate = 2
              AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM dibs.tasks AS p
            WHERE p.stream = s.stream AND p.due_at IS NOT NULL AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM dibs.tasks AS p
            WHERE p.stream = s.stream AND p.state = 'blocked' AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
    ) AS w
    LIMIT $2::int
))
AND t.stream = ANY ($1::int[]) AND t.state <> 'running'
ORDER BY t.id FOR UPDATE;
