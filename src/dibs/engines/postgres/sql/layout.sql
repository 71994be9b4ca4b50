-- What there is of a store. Takes the schema, the names of functions. Returns whether there is such a schema, its
-- tables and views, how many of the functions it has. Looks only at the catalogs, which everybody may.
SELECT
    EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS has_schema,
    (
        SELECT array_agg(c.relname::text) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')
    ) AS tables,
    (
        SELECT count(DISTINCT p.proname) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = $1 AND p.proname = ANY ($2::text[])
    ) AS functions;
