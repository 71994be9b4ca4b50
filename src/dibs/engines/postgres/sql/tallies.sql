-- Every count that is not zero. Takes nothing. Returns what, stream, queue, n: what has been folded, and what came
-- since.
SELECT what, stream, queue, sum(n)::bigint AS n
FROM (
    SELECT what, stream, queue, n FROM dibs.tallies
    UNION ALL
    SELECT what, stream, queue, n FROM dibs.deltas WHERE xid >= (SELECT dibs.folded_until())
) AS every
GROUP BY what, stream, queue HAVING sum(n) <> 0;
