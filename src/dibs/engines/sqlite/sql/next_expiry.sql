-- When the next waiting task expires. Takes ids to pass over (JSON array). Returns an instant or NULL. The first
-- entry of dibs_expiries that is not passed over.
SELECT (
    SELECT expires_at FROM dibs_tasks INDEXED BY dibs_expiries
    WHERE expires_at IS NOT NULL AND state <> 'running' AND id NOT IN (SELECT value FROM json_each(?))
    ORDER BY expires_at LIMIT 1
);
