-- Forget the histories of tasks. Takes ids.
DELETE FROM dibs.history WHERE task = ANY ($1::uuid[]);
