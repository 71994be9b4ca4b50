-- claim_look.sql for when something is set aside. Takes ids of tasks and numbers of errands to pass over (JSON arrays).
-- Returns the same. Reads dibs_due, dibs_expiries and dibs_errands up to the first that is not passed over.
SELECT
    generation,
    (
        SELECT due_at FROM dibs_tasks INDEXED BY dibs_due
        WHERE due_at IS NOT NULL AND id NOT IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT 1
    ),
    (
        SELECT expires_at FROM dibs_tasks INDEXED BY dibs_expiries
        WHERE expires_at IS NOT NULL AND state <> 'running' AND id NOT IN (SELECT value FROM json_each(?1))
        ORDER BY expires_at LIMIT 1
    ),
    EXISTS (SELECT 1 FROM dibs_errands WHERE n NOT IN (SELECT value FROM json_each(?2))),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_tallies WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;
