-- Store one new task: enqueue_many.sql for what is left over. Takes the columns of `admitted`.
INSERT INTO dibs_tasks (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, cancel, args, facts
)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?);
