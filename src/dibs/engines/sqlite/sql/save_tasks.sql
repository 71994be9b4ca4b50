-- Store unfinished tasks, new or changed. Takes a JSON array of tasks, each an array in the order of the columns.
-- Used record by record, for whatever has no bulk statement of its own.
REPLACE INTO dibs_tasks (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gated, partition, expires_at, workflow, progress, args, facts
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16, value ->> 17, value ->> 18, value ->> 19, value ->> 20, value ->> 21
FROM json_each(?);
