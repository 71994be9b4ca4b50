-- Store dead tasks one by one. Takes the columns of `ended_columns`.
INSERT INTO dibs.dead (
    id, day, stream, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, progress, result, args,
    facts, workflow, reason, created_at
)
SELECT * FROM unnest(
    $1::uuid[], $2::int[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[],
    $10::text[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[], $15::bytea[], $16::uuid[], $17::text[],
    $18::bigint[]
);
