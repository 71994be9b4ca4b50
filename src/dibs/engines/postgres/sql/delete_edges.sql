-- Forget the edges of tasks that are gone. Takes ids.
DELETE FROM dibs.edges WHERE dependent = ANY ($1::uuid[]);
