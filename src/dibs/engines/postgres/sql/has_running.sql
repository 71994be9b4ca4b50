-- Which of some workers have running tasks left. Takes workers, all streams, ids to pass over. Returns
-- workers. Reads as running_of.sql.
SELECT w.worker FROM unnest($1::text[]) AS w (worker)
WHERE EXISTS (
    SELECT 1 FROM unnest($2::int[]) AS s (stream)
    CROSS JOIN LATERAL (
        SELECT 1 FROM dibs.tasks WHERE stream = s.stream AND state = 'running' AND worker = w.worker
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY lease_expires_at LIMIT 1
    ) AS l
);
