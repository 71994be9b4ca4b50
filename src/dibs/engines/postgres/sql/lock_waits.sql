-- Who waits for whom in this store: for its tables and rows, or for the locks on its queues. Takes the schema, the
-- keys of those locks, how many seconds are long. Returns the pid that waits, what for, seconds, the pids in its way,
-- and of the first of these role, application, state, seconds of its transaction, query.
SELECT
    w.pid, w.locktype AS what, extract(epoch FROM clock_timestamp() - w.waitstart)::float8 AS seconds,
    b.pids AS blockers, a.usename::text AS role, a.application_name AS application, a.state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS blocking_seconds, left(a.query, 200) AS query
FROM pg_locks AS w
CROSS JOIN LATERAL (SELECT pg_blocking_pids(w.pid) AS pids) AS b
LEFT JOIN pg_stat_activity AS a ON a.pid = b.pids[1]
WHERE NOT w.granted AND w.waitstart <= clock_timestamp() - make_interval(secs => $3::float8)
  AND (
    (
        w.locktype = 'advisory' AND w.objsubid = 1
        AND w.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND (w.classid::bigint << 32 | w.objid::bigint) = ANY ($2::bigint[])
    )
    OR w.locktype <> 'advisory' AND EXISTS (
        SELECT 1 FROM pg_locks AS l
        JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE l.pid = w.pid AND n.nspname = $1
    )
  )
ORDER BY w.waitstart LIMIT 5;
