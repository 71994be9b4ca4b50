-- What has to be done before anything is chosen. Takes now, and the instant to look from. Returns whether there is
-- something to expire, to follow up or to promote with care, and whether there is something to promote. Reads ranges of
-- `expiries`, `due_guarded` and `due`.
SELECT
    EXISTS (SELECT 1 FROM dibs.errands)
    OR EXISTS (
        SELECT 1 FROM dibs.tasks
        WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at >= $2::bigint AND expires_at <= $1::bigint
    )
    OR EXISTS (
        SELECT 1 FROM dibs.tasks
        WHERE due_at IS NOT NULL AND gate > 0 AND due_at >= $2::bigint AND due_at <= $1::bigint
    ) AS care,
    EXISTS (
        SELECT 1 FROM dibs.tasks WHERE due_at IS NOT NULL AND due_at >= $2::bigint AND due_at <= $1::bigint
    ) AS due;
