-- Remove unfinished tasks. Takes ids (JSON array).
DELETE FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(?));
