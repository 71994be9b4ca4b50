-- Errands that are done. Takes numbers (JSON array).
DELETE FROM dibs_errands WHERE n IN (SELECT value FROM json_each(?));
