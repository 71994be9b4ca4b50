-- Keep the newest entries of some histories. Takes tasks, how many to keep.
DELETE FROM dibs.history AS h USING (
    SELECT
        wanted.task,
        (SELECT n FROM dibs.history WHERE task = wanted.task ORDER BY n DESC LIMIT 1 OFFSET $2::int) AS n
    FROM unnest($1::uuid[]) AS wanted (task)
) AS old
WHERE h.task = old.task AND h.n <= old.n;
