-- Store new tasks that nothing can stand in the way of. See the function.
SELECT * FROM dibs.enqueue(
    $1::bigint, $2::bigint, $3::int, $4::boolean, $5::uuid[], $6::int[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bytea[], $15::bytea[]
);
