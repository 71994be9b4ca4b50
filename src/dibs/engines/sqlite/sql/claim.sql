-- Lease pending tasks. Takes now, worker, sequence, lease (NULL: each task's own), ids (JSON array).
-- Moves them from dibs_pending to dibs_leases. The number of the lease only ever grows: it is the fence.
UPDATE dibs_tasks SET
    state = 'running',
    lease = lease + 1,
    lease_expires_at = ?1 + coalesce(?4, lease_for),
    started_at = ?1,
    worker = ?2,
    sequence = ?3,
    progress = NULL
WHERE id IN (SELECT value FROM json_each(?5)) AND state = 'pending';
