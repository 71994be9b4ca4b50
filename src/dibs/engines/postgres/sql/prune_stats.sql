-- Forget old minutes. Takes the first minute to keep, how many. Reads a range of the primary key.
DELETE FROM dibs.minutes AS m USING (
    SELECT minute, worker, queue, tier FROM dibs.minutes WHERE minute < $1::bigint ORDER BY minute LIMIT $2::int
) AS old
WHERE (m.minute, m.worker, m.queue, m.tier) = (old.minute, old.worker, old.queue, old.tier);
