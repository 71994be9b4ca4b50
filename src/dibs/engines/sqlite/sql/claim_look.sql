-- What a claim must know first. Takes nothing. Returns the generation, when the next waiting task falls due, when the
-- next one expires, 1 if errands are left, and a JSON array of (stream, pending tasks). A seek in dibs_due, dibs_expiries
-- and dibs_errands each, one short range of dibs_tallies. A damaged count is taken for a whole number, so that it stops no
-- claim: that there is something is all that claims go by.
SELECT
    generation,
    (SELECT min(due_at) FROM dibs_tasks WHERE due_at IS NOT NULL),
    (SELECT min(expires_at) FROM dibs_tasks WHERE expires_at IS NOT NULL AND state <> 'running'),
    EXISTS (SELECT 1 FROM dibs_errands),
    (
        SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
        FROM dibs_tallies WHERE what = 'pending' AND n > 0
    )
FROM dibs_store;
