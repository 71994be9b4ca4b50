-- Store one new task that nothing can stand in the way of. See the function.
SELECT * FROM dibs.enqueue_one(
    $1::bigint, $2::bigint, $3::int, $4::uuid, $5::bytea, $6::int, $7::bigint, $8::bigint, $9::bigint, $10::bigint,
    $11::bigint, $12::bigint, $13::text, $14::bytea
);
