-- Forget the histories of tasks. Takes ids (JSON array).
DELETE FROM dibs_history WHERE task IN (SELECT value FROM json_each(?));
