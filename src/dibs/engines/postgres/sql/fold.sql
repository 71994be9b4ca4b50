-- Add up changes of counts. Takes how many at most. Returns how many. Rows that somebody is folding are his.
WITH taken AS (
    DELETE FROM dibs.deltas WHERE ctid = ANY (ARRAY(SELECT ctid FROM dibs.deltas LIMIT $1::int FOR UPDATE SKIP LOCKED))
    RETURNING what, stream, queue, day, n
), folded AS (
    INSERT INTO dibs.tallies AS t (what, stream, queue, day, n)
    SELECT what, stream, queue, day, sum(n) FROM taken GROUP BY what, stream, queue, day
    ORDER BY what, stream, queue, day
    ON CONFLICT (what, stream, queue, day) DO UPDATE SET n = t.n + excluded.n
)
SELECT count(*)::int FROM taken;
