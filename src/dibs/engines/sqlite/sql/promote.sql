-- Make due tasks pending. Takes ids (JSON array). Moves them from dibs_due to dibs_pending; their rank holds already.
UPDATE dibs_tasks SET state = 'pending', due_at = NULL
WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('scheduled', 'retrying');
