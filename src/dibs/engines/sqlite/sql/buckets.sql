-- Some token buckets. Takes a JSON array of (queue, scope, whose). Returns a JSON array of (queue, scope, whose, level,
-- at) of those that there are. Seeks by primary key.
SELECT json_group_array(json_array(b.queue, b.scope, b.whose, b.level, b.at))
FROM json_each(?) AS wanted CROSS JOIN dibs_buckets AS b
WHERE b.queue = wanted.value ->> 0 AND b.scope = wanted.value ->> 1 AND b.whose = wanted.value ->> 2;
