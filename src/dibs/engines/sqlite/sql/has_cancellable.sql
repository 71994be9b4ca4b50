-- Whether a workflow has members that can still be cancelled. Takes its id. Returns 0 or 1.
-- Visits unfinished members in dibs_members until it finds one; only those that were asked to stop are passed over.
SELECT EXISTS (
    SELECT 1 FROM dibs_tasks WHERE workflow = ? AND NOT (state = 'running' AND cancel = 1)
);
