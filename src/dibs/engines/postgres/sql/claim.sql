-- name: claim
-- Lease the most urgent tasks of queues that need no more than one statement. See functions/claim.sql.
SELECT * FROM {schema}.claim_{version}(
    $1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::int, $7::int[], $8::int[], $9::int[], $10::bigint[],
    $11::bigint[], $12::boolean, $13::boolean, $14::bigint, $15::bigint,
    $16::jsonb, $17::bigint[], $18::int[], $19::int[], $20::text[], $21::boolean, $22::int, $23::int[], $24::int[],
    $25::int[], $26::int[], $27::int[], $28::int[], $29::int[], $30::int, $31::int[], $32::bigint, $33::text[],
    $34::bigint[], $35::float8, $36::bigint
);

-- name: upkeep
-- The upkeep to do before anything is chosen. Takes now, the instant to read from, and tasks and steps to skip.
-- Returns whether there is something to expire, to follow up or to promote that concerns others, and whether there is
-- something to promote. Reads ranges of `expiries`, `due_guarded` and `due`.
SELECT
    EXISTS (SELECT 1 FROM {schema}.steps WHERE id IS NULL AND (n IN (SELECT unnest($4::bigint[]))) IS NOT TRUE)
    OR EXISTS (
        SELECT 1 FROM {schema}.tasks
        WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at >= $2::bigint AND expires_at <= $1::bigint
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
    SELECT t.rank FROM {schema}.tasks AS t
    WHERE t.track = s.track AND t.share = '' AND t.state = 'pending' AND t.gate < 2
    ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
) AS h ON true;

-- name: read_tracks
-- A stretch of some tracks in claim order. Takes tracks, shares, ranks and ids to start after, a limit for each,
-- whether to include gated ones. Returns the number of what was asked for, rank, id, ready_at, track, partition. Reads
-- ranges of `pending` and, if asked, of `gated`.
SELECT s.n, h.rank, h.id, h.ready_at, s.track, h.partition
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::uuid[]) WITH ORDINALITY AS s (track, share, rank, id, n)
CROSS JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT t.rank, t.id, t.ready_at, t.partition FROM {schema}.tasks AS t
            WHERE t.track = s.track AND t.share = s.share AND t.state = 'pending' AND t.gate < 2
              AND (t.rank, t.id) > (s.rank, s.id)
            ORDER BY t.rank, t.id LIMIT $5::int
        )
        UNION ALL
        (
            SELECT t.rank, t.id, t.ready_at, t.partition FROM {schema}.tasks AS t
            WHERE $6::boolean AND t.track = s.track AND t.share = s.share AND t.state = 'pending' AND t.gate = 2
              AND (t.rank, t.id) > (s.rank, s.id)
            ORDER BY t.rank, t.id LIMIT $5::int
        )
    ) AS both_kinds
    ORDER BY rank, id LIMIT $5::int
) AS h
ORDER BY s.n, h.rank, h.id;

-- name: lease
-- Lease pending tasks. Takes now, worker, sequence, lease (NULL: each task's own), ids. Returns what a worker needs, share
-- and partition of those that are not locked and have not expired. The number of the lease only ever grows: it is the fence.
WITH free AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.id = ANY ($5::uuid[]) AND t.state = 'pending' AND (t.expires_at IS NULL OR t.expires_at > $1::bigint)
    ORDER BY t.id FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks AS t SET
    state = 'running',
    gate = least(t.gate, 1),
    lease = t.lease + 1,
    lease_expires_at = $1::bigint + coalesce($4::bigint, t.lease_for),
    started_at = $1::bigint,
    worker = $2::text,
    sequence = $3::bigint,
    progress = NULL
FROM free WHERE t.id = free.id
RETURNING
    t.id, t.track, t.share, t.partition, t.lease, t.lease_expires_at, t.ready_at, t.rank, t.args, t.facts;

-- name: claim_repeat
-- The leases of an earlier claim. Takes worker, sequence, all tracks. Returns the columns of `find`, by id. Visits the
-- running tasks through `leases`: repeats are rare, running tasks few.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.track = ANY ($3::int[]) AND t.state = 'running' AND t.worker = $1 AND t.sequence = $2 ORDER BY t.id;

-- name: unleasable
-- Pending tasks whose lease number or lease span is so large that no claim can lease them: damaged rows. Takes the
-- longest span, limit. Returns ids. Reads all pending tasks: only after a claim has failed because of one.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.state = 'pending' AND (t.lease = 2147483647 OR t.lease_for NOT BETWEEN 0 AND $1::bigint)
LIMIT $2::int;

-- name: unlease
-- Undo leases of tasks that the worker can't read: they are as before, except for the number of the claim if they had
-- been claimed before. Takes ids, leases. Seeks by id; the fence is in the statement.
WITH undone AS (
    UPDATE {schema}.tasks AS t SET
        state = 'pending',
        lease = t.lease - 1,
        lease_expires_at = NULL,
        started_at = NULL,
        worker = NULL,
        sequence = CASE WHEN t.lease = 1 THEN 0 ELSE t.sequence END
    WHERE t.id = ANY ($1::uuid[]) AND t.state = 'running'
      AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest($1::uuid[], $2::int[]) AS u (id, lease))) IS TRUE
    RETURNING t.track
)
INSERT INTO {schema}.count_changes (what, track, n)
SELECT w.what, c.track, w.sign * c.n
FROM
    (SELECT u.track, count(*) AS n FROM undone AS u GROUP BY u.track) AS c,
    (VALUES ('pending', 1), ('running', -1), ('claimed', -1)) AS w (what, sign);
