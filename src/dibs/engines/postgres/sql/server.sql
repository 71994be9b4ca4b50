-- What the server is, and how it is set for this session. Takes nothing. Returns version, fsync, full_page_writes,
-- synchronous_commit, who set that, autovacuum, how many sessions it has and may have, whether it is a standby.
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
