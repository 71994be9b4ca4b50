-- Add to counts. Takes what, stream, queue, day, change: columns.
INSERT INTO dibs.deltas (what, stream, queue, day, n)
SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::int[], $5::bigint[]);
