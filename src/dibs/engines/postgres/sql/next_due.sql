-- When the next waiting task falls due or expires, whether errands are left, and how long that took. Takes the instants
-- from which and to which to look (NULL: for ever), and tasks and errands to pass over. Reads ranges of `due` and `expiries`.
WITH found AS MATERIALIZED (
    SELECT
        least(
            (
                SELECT min(due_at) FROM dibs.tasks
                WHERE due_at IS NOT NULL AND due_at >= $1::bigint AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
                  AND due_at <= coalesce($2::bigint, 9223372036854775807)
            ),
            (
                SELECT min(expires_at) FROM dibs.tasks
                WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at >= $1::bigint
                  AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
                  AND expires_at <= coalesce($2::bigint, 9223372036854775807)
            )
        ) AS next_at,
        EXISTS (SELECT 1 FROM dibs.errands WHERE (n IN (SELECT unnest($4::bigint[]))) IS NOT TRUE) AS errands_left
)
SELECT
    next_at, errands_left, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS took
FROM found;
