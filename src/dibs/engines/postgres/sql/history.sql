-- The history of a task that there is. Takes its id. Returns n, entry (JSON), oldest first.
SELECT n, entry FROM dibs.history WHERE task = $1::uuid AND (
    EXISTS (SELECT 1 FROM dibs.tasks WHERE id = $1::uuid)
    OR EXISTS (SELECT 1 FROM dibs.dead WHERE id = $1::uuid)
    OR EXISTS (SELECT 1 FROM dibs.finished WHERE id = $1::uuid)
)
ORDER BY n;
