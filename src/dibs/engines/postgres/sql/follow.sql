-- Unfinished tasks that others wait for from now on. Takes ids. Who completes them then takes the longer way.
UPDATE dibs.tasks SET followed = true WHERE id = ANY ($1::uuid[]) AND NOT followed;
