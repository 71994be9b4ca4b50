-- Make due tasks pending. Takes ids (JSON array), and the streams of queues that limit partitions (JSON array), whose
-- tasks come in gated. Moves them from dibs_due to dibs_pending; their rank holds already.
UPDATE dibs_tasks SET
    state = 'pending',
    due_at = NULL,
    gated = partition IS NOT NULL AND stream IN (SELECT value FROM json_each(?2))
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'retrying');
