-- When the next waiting task falls due or expires, and whether errands are left. Takes nothing.
SELECT
    least(
        (SELECT min(due_at) FROM dibs.tasks WHERE due_at IS NOT NULL),
        (SELECT min(expires_at) FROM dibs.tasks WHERE expires_at IS NOT NULL AND state <> 'running')
    ) AS next_at,
    EXISTS (SELECT 1 FROM dibs.errands) AS errands_left;
