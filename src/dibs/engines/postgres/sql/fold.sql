-- Add up changes of counts. Takes how many at most. Returns how many. Remembers before which transaction all of them
-- have been: before the first that had not ended when this one looked, or, if it did not take all that it saw, before
-- the last one of which it took some. Who adds up at the same time waits at the chore's row. Rows that an earlier
-- version of Dibs is adding up are waited for, since it may yet leave them. Reads a range of `unfolded`.
WITH mark AS MATERIALIZED (
    SELECT c.name, CASE WHEN c.folded_by::xid = c.xmin THEN c.folded_until ELSE '0' END AS xid
    FROM dibs.chores AS c WHERE c.name = 'fold_counts' FOR UPDATE
), found AS MATERIALIZED (
    SELECT d.ctid AS place, d.xid FROM dibs.deltas AS d
    WHERE d.xid >= coalesce((SELECT m.xid FROM mark AS m), '0')
    ORDER BY d.xid LIMIT $1::int
), taken AS (
    DELETE FROM dibs.deltas WHERE ctid = ANY (ARRAY(SELECT f.place FROM found AS f))
    RETURNING what, stream, queue, day, n
), folded AS (
    INSERT INTO dibs.tallies AS t (what, stream, queue, day, n)
    SELECT what, stream, queue, day, sum(n) FROM taken GROUP BY what, stream, queue, day
    ORDER BY what, stream, queue, day
    ON CONFLICT (what, stream, queue, day) DO UPDATE SET n = t.n + excluded.n
), last AS (
    SELECT f.xid FROM found AS f WHERE (SELECT count(*) FROM found) = $1::int ORDER BY f.xid DESC LIMIT 1
), marked AS (
    UPDATE dibs.chores AS c SET
        folded_until = greatest(m.xid, least(pg_snapshot_xmin(pg_current_snapshot()), (SELECT l.xid FROM last AS l))),
        folded_by = pg_current_xact_id()
    FROM mark AS m WHERE c.name = m.name
)
SELECT count(*)::int FROM found;
