-- name: claim
-- Lease the most urgent tasks of queues without limits and shares. See functions/claim.sql.
SELECT * FROM {schema}.claim_{version}(
    $1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::int, $7::int[], $8::int[], $9::int[], $10::bigint[],
    $11::bigint[], $12::boolean, $13::boolean, $14::bigint, $15::bigint,
    $16::jsonb, $17::bigint[], $18::int[], $19::int[]
);

-- name: upkeep
-- The upkeep to do before anything is chosen. Takes now, the instant to read from, and tasks and steps to skip.
-- Returns whether there is something to expire, to follow up or to promote that concerns others, and whether there is
-- something to promote. Reads ranges of `pending_expiries`, `expiries`, `due_guarded` and `due`.
SELECT
    EXISTS (SELECT 1 FROM {schema}.steps WHERE id IS NULL AND (n IN (SELECT unnest($4::bigint[]))) IS NOT TRUE)
    OR EXISTS (
        SELECT 1 FROM {schema}.pending
        WHERE expires_at IS NOT NULL AND expires_at >= $2::bigint AND expires_at <= $1::bigint
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
    )
    OR EXISTS (
        SELECT 1 FROM {schema}.tasks
        WHERE expires_at IS NOT NULL AND state <> 'pending' AND expires_at >= $2::bigint AND expires_at <= $1::bigint
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
    )
    OR EXISTS (
        SELECT 1 FROM {schema}.tasks
        WHERE due_at IS NOT NULL AND gate > 0 AND due_at >= $2::bigint AND due_at <= $1::bigint
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
    ) AS is_needed,
    EXISTS (
        SELECT 1 FROM {schema}.tasks WHERE due_at IS NOT NULL AND due_at >= $2::bigint AND due_at <= $1::bigint
    ) AS due;

-- name: lock_for_claim
-- Lock queues exclusively for a claim. Takes their names, in order, now (NULL: the clock), whether the claim serves
-- others besides. Returns the names of those it has locked, and now, as of after the wait.
SELECT * FROM {schema}.lock_for_claim_{version}($1::text[], $2::bigint, $3::boolean);

-- name: heads
-- The first pending rank of some tracks, whatever dead entries lie before it. Takes tracks. Returns track, rank (NULL:
-- there are none), and how long it has taken so far. Reads `pending` from the beginning of each track.
SELECT
    s.track, h.rank, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS took
FROM unnest($1::int[]) AS s (track)
LEFT JOIN LATERAL (
    SELECT p.rank FROM {schema}.pending AS p
    WHERE p.track = s.track AND NOT p.gated AND p.share = ''
    ORDER BY p.track, p.gated, p.share, p.rank, p.id LIMIT 1
) AS h ON true;

-- name: read_tracks
-- A stretch of some tracks in claim order. Takes tracks, shares, ranks and ids to start after, a limit for each,
-- whether to include gated ones. Returns the number of what was asked for, rank, id, ready_at, track, partition. Reads
-- one or two ranges of `pending` each.
SELECT s.n, h.rank, h.id, h.ready_at, s.track, h.partition
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::uuid[]) WITH ORDINALITY AS s (track, share, rank, id, n)
CROSS JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT p.rank, p.id, p.ready_at, p.partition FROM {schema}.pending AS p
            WHERE p.track = s.track AND NOT p.gated AND p.share = s.share AND (p.rank, p.id) > (s.rank, s.id)
            ORDER BY p.rank, p.id LIMIT $5::int
        )
        UNION ALL
        (
            SELECT p.rank, p.id, p.ready_at, p.partition FROM {schema}.pending AS p
            WHERE $6::boolean AND p.track = s.track AND p.gated AND p.share = s.share AND (p.rank, p.id) > (s.rank, s.id)
            ORDER BY p.rank, p.id LIMIT $5::int
        )
    ) AS both_kinds
    ORDER BY rank, id LIMIT $5::int
) AS h
ORDER BY s.n, h.rank, h.id;

-- name: lease
-- Lease pending tasks. Takes now, worker, sequence, lease (NULL: each task's own), ids. Returns what a worker needs, share
-- and partition of those that are not locked and have not expired. See functions/claim.sql.
SELECT * FROM {schema}.start_{version}(
    {schema}.lock_pending_{version}($5::uuid[], true), $1::bigint, $2::text, $3::bigint, $4::bigint
);

-- name: claim_repeat
-- The leases of an earlier claim. Takes worker, sequence, all tracks. Returns the columns of `find`, by id. Reads all leases:
-- repeats are rare, leases few.
SELECT t.* FROM {schema}.unfinished AS t
WHERE t.id = ANY (ARRAY(SELECT unnest(l.ids) FROM {schema}.leases AS l WHERE l.worker = $1 AND l.sequence = $2))
  AND t.track = ANY ($3::int[]) AND t.state = 'running' AND t.worker = $1 AND t.sequence = $2 ORDER BY t.id;

-- name: unleasable
-- Pending tasks whose lease number or lease span is so large that no claim can lease them: damaged rows. Takes the
-- longest span, limit. Returns ids. Reads all pending tasks: only after a claim has failed because of one.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.state = 'pending' AND (t.lease = 2147483647 OR t.lease_for NOT BETWEEN 0 AND $1::bigint)
LIMIT $2::int;

-- name: unlease
-- Undo leases of tasks that the worker can't read: they are as before. Takes ids, leases. Seeks by id; the fence is in the
-- statement.
WITH undone AS (
    DELETE FROM {schema}.running AS r
    WHERE r.id = ANY ($1::uuid[])
      AND ((r.id, r.lease) IN (SELECT u.id, u.lease FROM unnest($1::uuid[], $2::int[]) AS u (id, lease))) IS TRUE
    RETURNING r.id, r.track
), pending AS (
    INSERT INTO {schema}.pending (id, track, gated, share, rank, ready_at, expires_at, partition)
    SELECT t.id, t.track, false, t.share, t.rank, t.ready_at, t.expires_at, t.partition FROM {schema}.tasks AS t
    WHERE t.id = ANY (ARRAY(SELECT u.id FROM undone AS u))
)
INSERT INTO {schema}.count_changes (what, track, n)
SELECT w.what, c.track, w.sign * c.n
FROM
    (SELECT u.track, count(*) AS n FROM undone AS u GROUP BY u.track) AS c,
    (VALUES ('pending', 1), ('running', -1), ('claimed', -1)) AS w (what, sign);
