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
-- Store one new task: `enqueue_many` for the remainder. Takes id, arguments, and the columns of `admitted`. `add_newest`
-- or `add_pending` follows.
INSERT INTO dibs_tasks (
    id, args, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, partition,
    expires_at, created_at, facts
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?);

-- name: enqueue_many
-- Store twenty new tasks in one step. Takes the same, task after task. Appends to dibs_tasks and to
-- those of its partial indexes that concern the task: for a plain pending one, none. Rows of parameters cost 7
-- µs a task where a JSON array read by json_each cost 12; more than twenty a statement gain nothing.
INSERT INTO dibs_tasks (
    id, args, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, sequence, partition,
    expires_at, created_at, facts
)
VALUES
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?),
    (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?);

-- name: add_newest
-- `add_pending` for tasks above all others, which costs a fifth of it. Takes the highest id that was in the store before.
INSERT INTO dibs_pending (track, gated, share, rank, id, ready_at, partition, expires_at)
SELECT track, 0, share, rank, id, ready_at, partition, expires_at FROM dibs_tasks WHERE id > ? AND state = 'pending';

-- name: add_blocks
-- Add to the index of id blocks. Takes a JSON array of (trait, block). What is there stays.
INSERT OR IGNORE INTO dibs_blocks (trait, block) SELECT value ->> 0, value ->> 1 FROM json_each(?);
