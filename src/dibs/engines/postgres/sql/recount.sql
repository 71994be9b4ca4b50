-- All tasks by state and stream. Takes nothing. Returns state, stream, n. Scans everything.
SELECT state, stream, count(*) AS n FROM (
    SELECT state, stream FROM dibs.tasks
    UNION ALL SELECT state, stream FROM dibs.dead
    UNION ALL SELECT state, stream FROM dibs.finished
) AS every
GROUP BY state, stream;
