-- name: complete
-- Move completed runs to the finished tasks. See functions/complete.sql.
SELECT * FROM {schema}.complete_{version}(
    $1::bigint, $2::bigint, $3::uuid[], $4::int[], $5::bytea[], $6::int[], $7::int[], $8::text[], $9::bigint[], $10::int
);
