-- name: enqueue_state
-- What an enqueue must know first. Takes nothing. Returns the generation and the highest id in the store ('' if none):
-- a new id above it needs no lookup. One seek at the end of each place.
SELECT
    generation,
    max(
        coalesce((SELECT max(id) FROM dibs_tasks), ''),
        coalesce((SELECT max(id) FROM dibs_dead), ''),
        coalesce((SELECT max(highest) FROM dibs_days), '')
    )
FROM dibs_store;

-- name: enqueue_one
-- Store one new task: `enqueue_many` for the remainder. Takes the columns of `admitted`.
INSERT INTO dibs_tasks (
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, cancel, args, facts
)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?);

-- name: enqueue_many
-- Store twenty new tasks in one step. Takes the columns of `admitted`, task after task. Appends to dibs_tasks and to
-- those of its partial indexes that concern the task: for a pending one, dibs_pending alone. Rows of parameters cost 7
-- µs a task where a JSON array read by json_each cost 12; more than twenty a statement gain nothing.
INSERT INTO dibs_tasks (
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, cancel, args, facts
)
VALUES
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0, ?, ?);
