-- Make queues and streams that there are not. See the function.
SELECT dibs.add_streams(
    $1::text[], $2::bytea, $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::boolean[], $9::int[]
);
