-- Hold a worker's lock for as long as this session lasts. Takes the worker's id. Returns since when sessions last at
-- this server, and whether the session is really ours: the process that serves us is the one that greeted us, whose
-- number is the second parameter. Who looks for absent workers (absent.sql) has the lock, which he takes alone, for
-- a moment only.
--
-- A crash ends all sessions, but not the postmaster. The statistics are thrown away then, and say when that was. People
-- may also reset them by hand: then nobody is missed until he has taken his lock once more, which he does now and then.
SELECT
    greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) AS since,
    CASE WHEN pg_backend_pid() = $2::int
    THEN pg_advisory_lock_shared(hashtextextended('dibs.workers ' || $1::text, 0)) IS NOT NULL END AS is_ours;
