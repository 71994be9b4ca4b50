-- How many tasks of some streams run. Takes streams. Returns stream, n. Ranges of `leases`.
SELECT stream, count(*) AS n FROM dibs.tasks WHERE state = 'running' AND stream = ANY ($1::int[]) GROUP BY stream;
