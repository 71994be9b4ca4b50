-- The indexes of the schema. Takes the schema. Returns name, whether it can be used.
SELECT i.relname::text AS name, x.indisvalid AND x.indisready AS valid
FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_namespace AS n ON n.oid = i.relnamespace
WHERE n.nspname = $1;
