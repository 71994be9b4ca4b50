-- The same tags, where claims read them. Takes a JSON array of (stream, share, tag). Seeks by primary key.
UPDATE dibs_turns SET tag = run.value ->> 2
FROM (SELECT value FROM json_each(?)) AS run
WHERE stream = run.value ->> 0 AND share = run.value ->> 1;
