-- name: server
-- The server, and its settings in this session. Takes nothing. Returns version, fsync, full_page_writes,
-- synchronous_commit, what set that, autovacuum, how many sessions it has and may have, whether it is a standby.
SELECT
    current_setting('server_version') AS version,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    s.setting AS synchronous_commit,
    s.source AS set_by,
    current_setting('autovacuum') = 'on' AS autovacuum,
    (SELECT sum(numbackends)::int FROM pg_stat_database) AS sessions,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most_sessions,
    pg_is_in_recovery() AS standby,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all,
    current_user AS role
FROM pg_settings AS s WHERE s.name = 'synchronous_commit';

-- name: versions
-- What a store consists of. Takes the schema. Returns its layout, of how many versions of Dibs it has functions.
SELECT
    (SELECT layout FROM {schema}.store) AS layout,
    count(DISTINCT right(p.proname, 8)) AS versions
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname ~ '_[0-9a-f]{8}$';

-- name: indexes
-- The indexes of the schema. Takes the schema. Returns name, whether it can be used.
SELECT i.relname::text AS name, x.indisvalid AND x.indisready AS valid
FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_namespace AS n ON n.oid = i.relnamespace
WHERE n.nspname = $1;

-- name: dead_rows
-- The dead rows of tables. Takes the schema. Returns table, rows, dead rows, seconds since it was vacuumed (NULL:
-- never), whether autovacuum is off for it. The statistics are the server's estimates.
SELECT
    s.relname::text AS name, s.n_live_tup AS rows, s.n_dead_tup AS dead,
    extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8 AS seconds,
    coalesce(c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false) AS neglected
FROM pg_stat_all_tables AS s JOIN pg_class AS c ON c.oid = s.relid
WHERE s.schemaname = $1 AND c.relkind = 'r' ORDER BY s.relname;

-- name: horizon
-- What keeps dead rows of this database from being removed: sessions with an old snapshot or an old transaction number,
-- and abandoned prepared transactions. Takes how many seconds are long. Returns pid (NULL: prepared), role,
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

-- name: slots
-- Replication slots, and standbys without one that report which rows they need. Takes nothing. Returns whether it is a
-- slot, name, whether it is in use, the age in transactions of the rows that it keeps, how many bytes of the log.
SELECT
    true AS is_slot, s.slot_name::text AS name, s.active,
    greatest(age(s.xmin), age(s.catalog_xmin)) AS transactions,
    pg_wal_lsn_diff(
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn
    )::bigint AS bytes
FROM pg_replication_slots AS s WHERE NOT s.temporary
UNION ALL
SELECT false, r.application_name, true, age(r.backend_xmin), NULL
FROM pg_stat_replication AS r WHERE r.backend_xmin IS NOT NULL
ORDER BY name;

-- name: lock_waits
-- Waits inside this store: for its tables and rows, or for the locks on its queues. Takes the schema, the keys of those
-- locks, how many seconds are long. Returns the pid that waits, what for, seconds, the pids that block it, and of the
-- first of these role, application, state, seconds of its transaction, query.
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

-- name: lock_keys_of
-- The numbers of the locks that a store uses. Takes the names of its queues. Returns numbers.
SELECT hashtextextended('{schema_text}.queues', 0) AS key
UNION ALL
SELECT hashtextextended('{schema_text}.queue ' || q, 0) FROM unnest($1::text[]) AS q;

-- name: other_days
-- Whether finished tasks lie outside the partitions for days, and whether a worker has ever led. Takes nothing.
SELECT
    EXISTS (SELECT 1 FROM {schema}.finished_other) AS others,
    EXISTS (SELECT 1 FROM {schema}.term) AS led;

-- name: log_position
-- The position of the log. Takes nothing. Returns it as text.
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text AS place;

-- name: replay
-- How far a standby is. Takes the primary's position of the log. Returns whether it is a standby, how many bytes it is
-- behind, seconds since the last transaction that it received.
SELECT
    pg_is_in_recovery() AS standby,
    CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff($1::text::pg_lsn, pg_last_wal_replay_lsn())::bigint ELSE 0 END
        AS behind,
    extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 AS seconds;
