-- How clean tables are. Takes the schema. Returns table, rows, dead rows, seconds since it was vacuumed (NULL: never),
-- whether autovacuum leaves it alone. The statistics are the server's estimates.
SELECT
    s.relname::text AS name, s.n_live_tup AS rows, s.n_dead_tup AS dead,
    extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8 AS seconds,
    coalesce(c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false) AS neglected
FROM pg_stat_all_tables AS s JOIN pg_class AS c ON c.oid = s.relid
WHERE s.schemaname = $1 AND c.relkind = 'r' ORDER BY s.relname;
