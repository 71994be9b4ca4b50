-- Some tasks of a queue whose partitions are no longer limited come forward. Takes streams, how many.
UPDATE dibs.tasks SET gate = CASE WHEN s.fair THEN 1 ELSE 0 END
FROM dibs.streams AS s
WHERE s.stream = tasks.stream AND tasks.id IN (
    SELECT t.id FROM dibs.tasks AS t
    WHERE t.stream = ANY ($1::int[]) AND t.state = 'pending' AND t.gate = 2 LIMIT $2::int
);
