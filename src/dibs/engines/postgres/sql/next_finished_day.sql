-- The next day that has finished tasks, from this one on. Takes the day. Returns a day. What has been folded of the
-- counts by day and what came since tell, not the tasks.
SELECT min(day) FROM (
    SELECT day FROM (
        SELECT day, n FROM dibs.tallies WHERE what IN ('completed', 'cancelled') AND day >= $1::int
        UNION ALL
        SELECT day, n FROM dibs.deltas
        WHERE what IN ('completed', 'cancelled') AND day >= $1::int AND xid >= (SELECT dibs.folded_until())
    ) AS every
    GROUP BY day HAVING sum(n) > 0
) AS days;
