-- Store new tasks. Takes a JSON array of tasks (the columns of `admitted`). Appends to dibs_tasks and to whichever
-- of its partial indexes concern the task: for a pending one, dibs_pending alone.
INSERT INTO dibs_tasks (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, cancel, args, facts
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, 0, value ->> 7, 0, 0,
    value ->> 8, value ->> 9
FROM json_each(?);
