-- Forget workflows. Takes ids (JSON array).
DELETE FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(?));
