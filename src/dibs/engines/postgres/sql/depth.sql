-- How many pending tasks some streams have. Takes streams. Returns a number: what has been folded, and what came since.
SELECT coalesce(sum(n), 0)::bigint
FROM (
    SELECT n FROM dibs.tallies WHERE what = 'pending' AND stream = ANY ($1::int[])
    UNION ALL
    SELECT n FROM dibs.deltas
    WHERE what = 'pending' AND stream = ANY ($1::int[]) AND xid >= (SELECT dibs.folded_until())
) AS every;
