-- Store unfinished tasks, new or changed. Takes columns. Whether others wait for a task stays as it was.
-- Used record by record, for whatever has no bulk statement of its own.
INSERT INTO dibs.tasks AS t (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gate, partition, expires_at, workflow, progress, args, facts, created_at
)
SELECT * FROM unnest(
    $1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::boolean[], $15::text[], $16::smallint[], $17::text[],
    $18::bigint[], $19::uuid[], $20::bytea[], $21::bytea[], $22::bytea[], $23::bigint[]
)
ON CONFLICT (id) DO UPDATE SET
    stream = excluded.stream, state = excluded.state, rank = excluded.rank, ready_at = excluded.ready_at,
    due_at = excluded.due_at, rerank_at = excluded.rerank_at, lease = excluded.lease, lease_for = excluded.lease_for,
    lease_expires_at = excluded.lease_expires_at, started_at = excluded.started_at, worker = excluded.worker,
    sequence = excluded.sequence, cancel = excluded.cancel, share = excluded.share, gate = excluded.gate,
    partition = excluded.partition, expires_at = excluded.expires_at, workflow = excluded.workflow,
    progress = excluded.progress, args = excluded.args, facts = excluded.facts;
