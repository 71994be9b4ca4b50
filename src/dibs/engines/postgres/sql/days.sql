-- The days that have a partition of their own. Takes the schema. Returns days.
SELECT substr(c.relname, 10)::int AS day
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ '^finished_[0-9]+$';
