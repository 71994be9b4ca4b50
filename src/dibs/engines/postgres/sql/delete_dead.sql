-- Remove dead tasks. Takes ids.
DELETE FROM dibs.dead WHERE id = ANY ($1::uuid[]);
