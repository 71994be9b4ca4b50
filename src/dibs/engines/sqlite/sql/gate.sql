-- Keep pending tasks back. Takes ids (JSON array). Moves them within dibs_pending.
UPDATE dibs_tasks SET gated = 1 WHERE id IN (SELECT value FROM json_each(?)) AND state = 'pending' AND gated = 0;
