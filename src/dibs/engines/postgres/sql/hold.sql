-- Hold a worker's lock for as long as this session lasts. Takes the worker's id. Returns since when the server runs, and
-- whether the session is really ours: the process that serves us is the one that greeted us, whose number is the second
-- parameter. Who looks for absent workers (absent.sql) has the lock, which he takes alone, only for a moment.
SELECT
    pg_postmaster_start_time() AS server_started,
    CASE WHEN pg_backend_pid() = $2::int
    THEN pg_advisory_lock_shared(hashtextextended('dibs.workers ' || $1::text, 0)) IS NOT NULL END AS is_ours;
