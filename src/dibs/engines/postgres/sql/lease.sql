-- Lease pending tasks. Takes now, worker, sequence, lease (NULL: each task's own), ids. Returns what a worker is told
-- of those that nobody else is at and that have not expired. The number of the lease only ever grows: it is the fence.
WITH free AS MATERIALIZED (
    SELECT t.id FROM dibs.tasks AS t
    WHERE t.id = ANY ($5::uuid[]) AND t.state = 'pending' AND (t.expires_at IS NULL OR t.expires_at > $1::bigint)
    ORDER BY t.id FOR UPDATE SKIP LOCKED
)
UPDATE dibs.tasks AS t SET
    state = 'running',
    gate = least(t.gate, 1),
    lease = t.lease + 1,
    lease_expires_at = $1::bigint + coalesce($4::bigint, t.lease_for),
    started_at = $1::bigint,
    worker = $2::text,
    sequence = $3::bigint,
    progress = NULL
FROM free WHERE t.id = free.id
RETURNING t.id, t.stream, t.lease, t.lease_expires_at, t.ready_at, t.rank, t.args, t.facts;
