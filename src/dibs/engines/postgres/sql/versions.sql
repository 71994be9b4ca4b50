-- What a store is made of. Takes the schema. Returns its layout, of how many versions of Dibs it has functions.
SELECT
    (SELECT layout FROM dibs.store) AS layout,
    count(DISTINCT right(p.proname, 8)) AS versions
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname ~ '_[0-9a-f]{8}$';
