-- Completed runs move to the finished tasks. See the function.
SELECT * FROM dibs.complete($1::bigint, $2::uuid[], $3::int[], $4::bytea[]);
