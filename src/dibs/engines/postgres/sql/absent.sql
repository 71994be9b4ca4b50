-- Workers whose process should hold their lock at this server (hold.sql), and does not. Takes nothing. Returns ids.
-- Nobody else holds a lock that can be taken alone; it is given back when the transaction ends. Looks at as many locks
-- as there are live workers, each of which has a session of its own; asks for none before all other conditions hold
-- (hence MATERIALIZED).
WITH expected AS MATERIALIZED (
    SELECT id FROM dibs.workers
    WHERE state <> 'dead' AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('dibs.workers ' || id, 0)) ORDER BY id;
