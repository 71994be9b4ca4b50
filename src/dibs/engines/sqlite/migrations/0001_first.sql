-- The first layout. Names begin with dibs_ because users may keep their own tables in the same file.
--
-- Ids are UUIDv7 text in time order, and tables of tasks are WITHOUT ROWID: rows are appended at the end of one b-tree,
-- not spread over two. Random keys cost two thirds of the drain rate.

-- One row; that it exists says that Dibs lives in this file. `layout` is the last migration, and code that knows at
-- least `oldest_reader` may use the store. `generation` grows with every change of queues and streams, so that a cached
-- copy knows when it is old. `presence` is the last byte of the presence file that was given to a worker.
CREATE TABLE dibs_store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    layout INTEGER NOT NULL,
    oldest_reader INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    presence INTEGER NOT NULL
);
INSERT INTO dibs_store VALUES (1, 1, 1, 1, 0);

-- settings and bucket are JSON. `epoch` is the version of the settings that last changed the order of tasks.
-- rerank_due and rerank_id: how far the rerank chore has come among tasks that wait for their time.
CREATE TABLE dibs_queues (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    settings TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    bucket TEXT,
    rerank_due INTEGER,
    rerank_id TEXT
) WITHOUT ROWID;

-- A stream is what one claim can read from end to end: tasks of one kind, in one lane of one queue, ranked under one
-- epoch of its settings. Tasks carry the stream's number instead of all that. Streams are never deleted: ended tasks
-- go on naming them.
CREATE TABLE dibs_streams (
    stream INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    requires TEXT NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    UNIQUE (queue, name, requires, lane, epoch)
);

-- Counts kept with every move. `what` is a state, then `whose` is a stream; or a counter, then `whose` is a queue's name.
CREATE TABLE dibs_tallies (
    what TEXT NOT NULL,
    whose NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (what, whose)
) WITHOUT ROWID;

-- Unfinished tasks. Columns are what statements look at or change in bulk; the rest is JSON in `facts`.
-- rank = ready_at + offset. `progress` is JSON: [fraction, message]. `cancel`: 1 when the task has been asked to stop.
CREATE TABLE dibs_tasks (
    id TEXT PRIMARY KEY,
    stream INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    due_at INTEGER,
    rerank_at INTEGER,
    lease INTEGER NOT NULL,
    lease_for INTEGER NOT NULL,
    lease_expires_at INTEGER,
    started_at INTEGER,
    worker TEXT,
    sequence INTEGER NOT NULL,
    cancel INTEGER NOT NULL,
    progress TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL
) WITHOUT ROWID;

-- Claim order.
CREATE INDEX dibs_pending ON dibs_tasks (stream, rank, id) WHERE state = 'pending';
CREATE INDEX dibs_due ON dibs_tasks (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX dibs_leases ON dibs_tasks (lease_expires_at, id) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX dibs_reranks ON dibs_tasks (rerank_at, id) WHERE rerank_at IS NOT NULL AND state <> 'running';

-- Completed and cancelled tasks by the UTC day of their end, so that retention deletes a range.
CREATE TABLE dibs_finished (
    day INTEGER NOT NULL,
    id TEXT NOT NULL,
    stream INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    lease INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    worker TEXT,
    sequence INTEGER NOT NULL,
    progress TEXT,
    result TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (day, id)
) WITHOUT ROWID;

-- The days that dibs_finished has, and between which ids they lie: a lookup by id only probes where it can be.
-- `pruned` is a JSON array of the queues that nothing is left to prune of.
CREATE TABLE dibs_days (
    day INTEGER PRIMARY KEY,
    lowest TEXT NOT NULL,
    highest TEXT NOT NULL,
    pruned TEXT NOT NULL
);

CREATE TABLE dibs_dead (
    id TEXT PRIMARY KEY,
    day INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    lease INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    worker TEXT,
    sequence INTEGER NOT NULL,
    progress TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX dibs_dead_days ON dibs_dead (day, id);

CREATE TABLE dibs_history (
    task TEXT NOT NULL,
    n INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (task, n)
) WITHOUT ROWID;

-- Idempotency keys (as JSON text), held while their task is unfinished or until `held_until`.
CREATE TABLE dibs_keys (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    task TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    held_until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX dibs_keys_held ON dibs_keys (held_until, queue, key);

-- `record` is JSON. `presence`: the byte of the presence file that the worker's process holds locked while it lives.
CREATE TABLE dibs_workers (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    presence INTEGER,
    record TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE dibs_minutes (
    minute INTEGER NOT NULL,
    worker TEXT NOT NULL,
    queue TEXT NOT NULL,
    tier TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (minute, worker, queue, tier)
) WITHOUT ROWID;

-- At most one row: who leads, and until when.
CREATE TABLE dibs_term (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);

-- `record` is JSON; `cursor` is where the next step of the chore goes on.
CREATE TABLE dibs_chores (
    name TEXT PRIMARY KEY,
    record TEXT NOT NULL,
    cursor TEXT
) WITHOUT ROWID;

CREATE TABLE dibs_audit (
    n INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    entry TEXT NOT NULL
);
