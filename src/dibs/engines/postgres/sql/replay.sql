-- How far a standby is. Takes the place in the log where the primary was just now. Returns whether it is a standby, how
-- many bytes it is behind, seconds since the last transaction that it has heard of.
SELECT
    pg_is_in_recovery() AS standby,
    CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff($1::text::pg_lsn, pg_last_wal_replay_lsn())::bigint ELSE 0 END
        AS behind,
    extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 AS seconds;
