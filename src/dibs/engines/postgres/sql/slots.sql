-- Replication slots, and standbys without one that tell which rows they need. Takes nothing. Returns whether it is a
-- slot, name, whether somebody uses it, how many transactions old the rows are that it keeps, how many bytes of the log.
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
