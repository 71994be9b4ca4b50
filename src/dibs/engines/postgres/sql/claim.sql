-- Lease the most urgent tasks of queues without limits and shares. See the function.
SELECT * FROM dibs.claim(
    $1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::int, $7::int[], $8::int[], $9::int[], $10::bigint[],
    $11::bigint[], $12::boolean, $13::boolean, $14::bigint, $15::bigint,
    $16::jsonb, $17::bigint[]
);
