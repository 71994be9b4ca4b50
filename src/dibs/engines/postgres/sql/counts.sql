-- name: count
-- Add to counts. Takes what, track, queue, day, change: columns.
INSERT INTO {schema}.count_changes (what, track, queue, day, n)
SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::int[], $5::bigint[]);

-- name: counts
-- Every count that is not zero. Takes nothing. Returns what, track, queue, n: the folded counts plus later changes.
SELECT what, track, queue, sum(n)::bigint AS n
FROM (
    SELECT what, track, queue, n FROM {schema}.counts
    UNION ALL
    SELECT what, track, queue, n FROM {schema}.count_changes WHERE xid >= (SELECT {schema}.folded_until_{version}())
) AS every
GROUP BY what, track, queue HAVING sum(n) <> 0;

-- name: error_counts
-- Which errors are counted in a queue. Takes the queue. Returns what is counted ('error TYPE'). Scans the counts: run
-- only when a process meets a type for the first time.
SELECT DISTINCT what FROM (
    SELECT what, queue FROM {schema}.counts
    UNION ALL
    SELECT what, queue FROM {schema}.count_changes WHERE xid >= (SELECT {schema}.folded_until_{version}())
) AS every
WHERE queue = $1::text AND starts_with(what, 'error ');

-- name: fold
-- Fold changes of counts. Takes a limit. Returns how many were folded. Saves the transaction before which all of them
-- were: the first that had not ended at the time of the read or, if the limit was reached, the last one of which some
-- were folded. A concurrent fold waits at the chore's row. Reads a range of `unfolded`.
WITH mark AS MATERIALIZED (
    SELECT c.name, CASE WHEN c.folded_by::xid = c.xmin THEN c.folded_until ELSE '0' END AS xid
    FROM {schema}.chores AS c WHERE c.name = 'fold_counts' FOR UPDATE
), found AS MATERIALIZED (
    SELECT d.ctid AS place, d.xid FROM {schema}.count_changes AS d
    WHERE d.xid >= coalesce((SELECT m.xid FROM mark AS m), '0')
    ORDER BY d.xid LIMIT $1::int
), taken AS (
    DELETE FROM {schema}.count_changes WHERE ctid = ANY (ARRAY(SELECT f.place FROM found AS f))
    RETURNING what, track, queue, day, n
), folded AS (
    INSERT INTO {schema}.counts AS t (what, track, queue, day, n)
    SELECT what, track, queue, day, sum(n) FROM taken GROUP BY what, track, queue, day
    ORDER BY what, track, queue, day
    ON CONFLICT (what, track, queue, day) DO UPDATE SET n = t.n + excluded.n
), last AS (
    SELECT f.xid FROM found AS f WHERE (SELECT count(*) FROM found) = $1::int ORDER BY f.xid DESC LIMIT 1
), marked AS (
    UPDATE {schema}.chores AS c SET
        folded_until = greatest(m.xid, least(pg_snapshot_xmin(pg_current_snapshot()), (SELECT l.xid FROM last AS l))),
        folded_by = pg_current_xact_id()
    FROM mark AS m WHERE c.name = m.name
)
SELECT count(*)::int FROM found;

-- name: tail
-- How many changes of counts wait to be folded. Takes a limit. Returns a number.
SELECT count(*)
FROM (SELECT 1 FROM {schema}.count_changes WHERE xid >= (SELECT {schema}.folded_until_{version}()) LIMIT $1::int) AS waiting;

-- name: depth
-- How many pending tasks some tracks have. Takes tracks. Returns a number: the folded counts plus later changes.
SELECT coalesce(sum(n), 0)::bigint
FROM (
    SELECT n FROM {schema}.counts WHERE what = 'pending' AND track = ANY ($1::int[])
    UNION ALL
    SELECT n FROM {schema}.count_changes
    WHERE what = 'pending' AND track = ANY ($1::int[]) AND xid >= (SELECT {schema}.folded_until_{version}())
) AS every;

-- name: recount
-- All tasks by state and track. Takes nothing. Returns state, track, n. Scans everything. A task that is stored as pending
-- counts where its row says what it is.
SELECT state, track, count(*) AS n FROM (
    SELECT state, track FROM {schema}.tasks WHERE state <> 'pending'
    UNION ALL SELECT 'pending', track FROM {schema}.pending
    UNION ALL SELECT 'running', track FROM {schema}.running
    UNION ALL SELECT state, track FROM {schema}.dead
    UNION ALL SELECT state, track FROM {schema}.finished
) AS every
GROUP BY state, track;

-- name: running_by_track
-- How many tasks of some tracks run, of queues with limits. Takes tracks. Returns track, n. Ranges of `running_counted`.
SELECT track, count(*) AS n FROM {schema}.running WHERE counted AND track = ANY ($1::int[]) GROUP BY track;

-- name: tracks_with_pending
-- Which of some tracks have pending tasks, including gated ones. Takes tracks. Returns tracks. A seek each.
SELECT s.track FROM unnest($1::int[]) AS s (track)
WHERE EXISTS (SELECT 1 FROM {schema}.pending AS p WHERE p.track = s.track);
