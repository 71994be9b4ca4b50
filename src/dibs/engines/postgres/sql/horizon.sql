-- Who keeps dead rows of this database from being removed: sessions with an old snapshot or an old transaction number,
-- and transactions that were prepared and left. Takes how many seconds are long. Returns pid (NULL: prepared), role,
-- application, state, seconds, the beginning of the query or the prepared transaction's name; the oldest first.
SELECT
    a.pid, a.usename::text AS role, a.application_name AS application, a.state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds, left(a.query, 200) AS query
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  AND a.backend_type <> 'autovacuum worker'
  AND a.xact_start <= clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT
    NULL, p.owner::text, '', 'prepared', extract(epoch FROM clock_timestamp() - p.prepared)::float8, p.gid
FROM pg_prepared_xacts AS p
WHERE p.database = current_database() AND p.prepared <= clock_timestamp() - make_interval(secs => $1::float8)
ORDER BY seconds DESC LIMIT 5;
