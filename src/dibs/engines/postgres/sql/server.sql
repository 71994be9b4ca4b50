-- What the server is. Takes nothing. Returns version, fsync, synchronous_commit.
SELECT
    current_setting('server_version') AS version,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('synchronous_commit') <> 'off' AS synchronous_commit;
