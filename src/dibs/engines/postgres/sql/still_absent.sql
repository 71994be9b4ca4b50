-- Those of some workers who are still absent (see absent.sql), for as long as this transaction lasts: meanwhile none of
-- them can come back, and nobody else sees to their tasks. Takes ids. Returns ids.
WITH expected AS MATERIALIZED (
    SELECT id FROM dibs.workers
    WHERE id = ANY ($1::text[]) AND state <> 'dead'
      AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('dibs.workers ' || id, 0)) ORDER BY id;
