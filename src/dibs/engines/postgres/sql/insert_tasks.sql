-- Store new tasks one by one. Takes columns, and whether others wait for them. Returns nothing: how many were stored
-- tells if one of them was known after all.
INSERT INTO dibs.tasks AS t (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gate, partition, expires_at, workflow, progress, args, facts, created_at, followed
)
SELECT * FROM unnest(
    $1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::boolean[], $15::text[], $16::smallint[], $17::text[],
    $18::bigint[], $19::uuid[], $20::bytea[], $21::bytea[], $22::bytea[], $23::bigint[], $24::boolean[]
)
ON CONFLICT (id) DO NOTHING;
