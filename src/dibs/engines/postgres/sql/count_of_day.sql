-- How many tasks ended on a day. Takes the day. Returns what, stream, n.
SELECT what, stream, sum(n)::bigint AS n FROM (
    SELECT what, stream, n FROM dibs.tallies WHERE day = $1::int
    UNION ALL
    SELECT what, stream, n FROM dibs.deltas WHERE day = $1::int AND xid >= (SELECT dibs.folded_until())
) AS every
GROUP BY what, stream HAVING sum(n) <> 0;
