-- name: extend
-- Extend leases. See the function.
SELECT * FROM {schema}.extend_{version}($1::bigint, $2::uuid[], $3::int[], $4::bigint[], $5::bytea[]);
