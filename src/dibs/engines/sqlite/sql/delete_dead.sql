-- Remove dead tasks. Takes ids (JSON array).
DELETE FROM dibs_dead WHERE id IN (SELECT value FROM json_each(?));
