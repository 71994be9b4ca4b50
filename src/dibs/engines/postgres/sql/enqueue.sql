-- Store new tasks that nothing can stand in the way of. See the function.
SELECT * FROM dibs.enqueue(
    $1::bigint, $2::bigint, $3::int, $4::boolean, $5::uuid[], $6::int[], $7::bytea[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::bytea[]
);
