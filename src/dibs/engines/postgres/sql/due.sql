-- name: promote
-- Make due tasks pending. Takes now, limit, the instant to read from, the tracks whose events are wanted. See
-- functions/tasks.sql.
SELECT {schema}.promote_{version}($1::bigint, $2::int, $3::bigint, $4::int[]);

-- name: due_guarded
-- Due tasks whose moves concern others, earliest first, locked. Takes now, limit, the instant to read from, ids to
-- skip. Returns the columns of `find`. Reads a range of `due_guarded`.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.due_at IS NOT NULL AND t.gate > 0 AND t.due_at >= $3::bigint AND t.due_at <= $1::bigint
  AND t.state IN ('scheduled', 'retrying') AND (t.id IN (SELECT unnest($4::uuid[]))) IS NOT TRUE
ORDER BY t.due_at, t.id LIMIT $2::int FOR UPDATE SKIP LOCKED;

-- name: too_late
-- Waiting tasks that have expired, longest ago first, locked. Takes now, limit, the instant to read from, ids to skip.
-- Returns the columns of `find`. Reads a range of `expiries`.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.expires_at IS NOT NULL AND t.state <> 'running' AND t.expires_at >= $3::bigint AND t.expires_at <= $1::bigint
  AND (t.id IN (SELECT unnest($4::uuid[]))) IS NOT TRUE
ORDER BY t.expires_at, t.id LIMIT $2::int FOR UPDATE SKIP LOCKED;

-- name: next_due
-- When the next waiting task is due or expires, whether follow-ups are left, and how long that took. Takes the instants
-- from which and to which to read (NULL: for ever), and tasks and follow-ups to skip. Reads ranges of `due` and
-- `expiries`.
WITH found AS MATERIALIZED (
    SELECT
        least(
            (
                SELECT min(due_at) FROM {schema}.tasks
                WHERE due_at IS NOT NULL AND due_at >= $1::bigint AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
                  AND due_at <= coalesce($2::bigint, 9223372036854775807)
            ),
            (
                SELECT min(expires_at) FROM {schema}.tasks
                WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at >= $1::bigint
                  AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
                  AND expires_at <= coalesce($2::bigint, 9223372036854775807)
            )
        ) AS next_at,
        EXISTS (SELECT 1 FROM {schema}.steps WHERE id IS NULL AND (n IN (SELECT unnest($4::bigint[]))) IS NOT TRUE) AS follow_ups_left
)
SELECT
    next_at, follow_ups_left, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS took
FROM found;

-- name: reranks_due
-- Waiting tasks whose rank must be computed again, locked. Takes now, limit, ids to skip. Returns the columns of
-- `find`. Reads a range of `reranks`.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.rerank_at IS NOT NULL AND t.state <> 'running' AND t.rerank_at <= $1::bigint
  AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
ORDER BY t.rerank_at, t.id LIMIT $2::int FOR UPDATE;
