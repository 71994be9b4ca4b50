-- Let pending tasks forward. Takes ids (JSON array). Moves them within dibs_pending.
UPDATE dibs_tasks SET gated = 0 WHERE id IN (SELECT value FROM json_each(?));
