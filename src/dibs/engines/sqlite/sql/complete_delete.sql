-- Completed runs leave the unfinished tasks; after complete.sql. Takes the same JSON array. The fence again: a row
-- whose lease is another's stays.
DELETE FROM dibs_tasks
WHERE (id, lease) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) AND state = 'running';
