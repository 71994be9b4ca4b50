-- How many tasks of some streams run under a lease that has not ended. Takes streams (JSON array), now.
-- The tally of running tasks less a range of dibs_leases: leases that have ended are few.
SELECT
    (
        SELECT coalesce(sum(n), 0) FROM dibs_tallies
        WHERE what = 'running' AND whose IN (SELECT value FROM json_each(?1))
    )
    - (
        SELECT count(*) FROM dibs_tasks INDEXED BY dibs_leases
        WHERE lease_expires_at IS NOT NULL AND lease_expires_at <= ?2
          AND stream IN (SELECT value FROM json_each(?1))
    );
