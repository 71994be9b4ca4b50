-- Remove unfinished tasks. Takes ids.
DELETE FROM dibs.tasks WHERE id = ANY ($1::uuid[]);
