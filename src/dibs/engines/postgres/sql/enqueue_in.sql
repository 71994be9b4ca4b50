-- Store new tasks that nothing can stand in the way of, in the user's own transaction. See the function.
SELECT * FROM dibs.enqueue_in(
    $1::text, $2::text[], $3::bigint, $4::bigint, $5::int, $6::uuid[], $7::int[], $8::bytea[], $9::int[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], $17::bytea[]
);
