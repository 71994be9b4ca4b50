-- Forget workflows. Takes ids.
DELETE FROM dibs.workflows WHERE id = ANY ($1::uuid[]);
