-- Forget old minutes. Takes the first minute to keep, how many. Reads a range of the primary key.
DELETE FROM dibs_minutes WHERE (minute, worker, queue, tier) IN (
    SELECT minute, worker, queue, tier FROM dibs_minutes WHERE minute < ?1 ORDER BY minute LIMIT ?2
);
