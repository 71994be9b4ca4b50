-- What has to be done before anything is chosen. Takes now, the instant to look from, and tasks and errands to pass
-- over. Returns whether there is something to expire, to follow up or to promote with care, and whether there is
-- something to promote. Reads ranges of `expiries`, `due_guarded` and `due`.
SELECT
    EXISTS (SELECT 1 FROM dibs.errands WHERE (n IN (SELECT unnest($4::bigint[]))) IS NOT TRUE)
    OR EXISTS (
        SELECT 1 FROM dibs.tasks
        WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at >= $2::bigint AND expires_at <= $1::bigint
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
    )
    OR EXISTS (
        SELECT 1 FROM dibs.tasks
        WHERE due_at IS NOT NULL AND gate > 0 AND due_at >= $2::bigint AND due_at <= $1::bigint
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
    ) AS care,
    EXISTS (
        SELECT 1 FROM dibs.tasks WHERE due_at IS NOT NULL AND due_at >= $2::bigint AND due_at <= $1::bigint
    ) AS due;
