-- name: complete
-- Move completed runs to the finished tasks. See the function.
SELECT * FROM {schema}.complete_{version}($1::bigint, $2::uuid[], $3::int[], $4::bytea[]);
