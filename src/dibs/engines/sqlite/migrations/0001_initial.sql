-- The layout of a new store. Names begin with dibs_ because users may keep their own tables in the same file.
--
-- Ids are UUIDv7 text in time order, and tables of tasks are WITHOUT ROWID: rows are appended at the end of one b-tree,
-- not spread over two. Random keys cost two thirds of the drain rate.

-- One row; a file that has it is a Dibs store. `layout` is the last migration, and code that knows at least
-- `oldest_reader` may use the store. `generation` grows with every change of queues and tracks, which outdates cached
-- copies. `presence` is the last byte of the presence file that was given to a worker. `identity` is the random id of
-- this store. `events_trimmed` is the number of the last event that was deleted.
CREATE TABLE dibs_store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    layout INTEGER NOT NULL,
    oldest_reader INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    presence INTEGER NOT NULL,
    identity TEXT NOT NULL DEFAULT '',
    events_trimmed INTEGER NOT NULL DEFAULT 0
);
INSERT INTO dibs_store VALUES (1, 1, 1, 1, 0, lower(hex(randomblob(16))), 0);

-- settings are JSON. `epoch` is the version of the settings that last changed the order of tasks. `clock` is the
-- virtual time of a fair queue. rerank_due and rerank_id: how far the rerank chore has come among tasks that are not
-- due.
CREATE TABLE dibs_queues (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    settings TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    rerank_due INTEGER,
    rerank_id TEXT,
    clock INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A track is what one claim can read from end to end: tasks of one kind, in one lane of one queue, ranked under one
-- epoch of its settings. Tasks have the track's number instead of all that. Tracks are never deleted: ended tasks still
-- name them. `fair`: 1 if the queue shared its capacity between tenants when the track's tasks were ranked. Only then
-- do its tasks have shares. `band`: the tier of the priorities that its tasks were submitted with, as
-- `dibs.engines.decisions.facts.MIXED` has it.
CREATE TABLE dibs_tracks (
    track INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    requires TEXT NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    fair INTEGER NOT NULL,
    band INTEGER NOT NULL,
    UNIQUE (queue, name, requires, lane, epoch, fair, band)
);

-- Counts kept with every move. `what` is a state, then `whose` is a track; or a counter, then `whose` is a queue's
-- name.
CREATE TABLE dibs_counts (
    what TEXT NOT NULL,
    whose NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (what, whose)
) WITHOUT ROWID;

-- Unfinished tasks. Columns are what statements read or change in bulk, before `args` and `facts`, which may be long;
-- the rest is JSON in `facts`. rank = ready_at + offset. `progress` is JSON: [fraction, message]. `cancel`: 1 when the
-- task has been asked to stop. `share`: the tenant in whose turn it is claimed ('' unless the track is fair). `gated`:
-- 1 while a pending task is kept from claims because others of its partition go first. `partition` is the queue's name,
-- a space, and the partition. `workflow` is the workflow it belongs to. `version` grows with every change that neither
-- the state nor the lease number shows, except of `gated`, and goes with the task from table to table. A blocked task
-- has no due_at here, so that nothing promotes it: it is in its facts. `batch`: where it says when the lease of a running
-- task ends, after its first extension; lease_expires_at is then later than any instant.
CREATE TABLE dibs_tasks (
    id TEXT PRIMARY KEY,
    track INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    due_at INTEGER,
    rerank_at INTEGER,
    lease INTEGER NOT NULL,
    lease_for INTEGER NOT NULL,
    lease_expires_at INTEGER,
    batch INTEGER,
    started_at INTEGER,
    worker TEXT,
    sequence INTEGER NOT NULL,
    cancel INTEGER NOT NULL,
    share TEXT NOT NULL DEFAULT '',
    gated INTEGER NOT NULL DEFAULT 0,
    partition TEXT,
    expires_at INTEGER,
    workflow TEXT,
    version INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    progress TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL
) WITHOUT ROWID;

-- Claim order: gated tasks lie apart from what claims read.
CREATE INDEX dibs_pending ON dibs_tasks (track, gated, share, rank, id) WHERE state = 'pending';
CREATE INDEX dibs_due ON dibs_tasks (due_at, id) WHERE due_at IS NOT NULL;
-- Tasks that are not due, for searches.
CREATE INDEX dibs_later ON dibs_tasks (track, state, id) WHERE due_at IS NOT NULL;
CREATE INDEX dibs_leases ON dibs_tasks (lease_expires_at, id) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX dibs_batched ON dibs_tasks (batch) WHERE batch IS NOT NULL;
CREATE INDEX dibs_reranks ON dibs_tasks (rerank_at, id) WHERE rerank_at IS NOT NULL AND state <> 'running';
CREATE INDEX dibs_blocked ON dibs_tasks (track, id) WHERE state = 'blocked';
CREATE INDEX dibs_expiries ON dibs_tasks (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';
-- The pending tasks of a partition in order; and its running ones, which are its used slots: few, on few pages.
CREATE INDEX dibs_partitions ON dibs_tasks (partition, state, track, share, rank, id, ready_at)
    WHERE state = 'pending' AND partition IS NOT NULL;
CREATE INDEX dibs_slots ON dibs_tasks (partition, state, id) WHERE state = 'running' AND partition IS NOT NULL;
CREATE INDEX dibs_members ON dibs_tasks (workflow, id, state) WHERE workflow IS NOT NULL;

-- Running tasks whose leases are extended together, so that a heartbeat writes one row, and one page: batches are few,
-- and no index is worth a second one.
CREATE TABLE dibs_batches (
    batch INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL
);

-- Completed and cancelled tasks by the UTC day of their end, so that retention deletes a range.
CREATE TABLE dibs_finished (
    day INTEGER NOT NULL,
    id TEXT NOT NULL,
    track INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    lease INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    worker TEXT,
    sequence INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    progress TEXT,
    result TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL,
    workflow TEXT,
    PRIMARY KEY (day, id)
) WITHOUT ROWID;
CREATE INDEX dibs_finished_members ON dibs_finished (workflow, id, state) WHERE workflow IS NOT NULL;
-- For searches: cancelled tasks are few among the completed ones, which this index does not concern.
CREATE INDEX dibs_cancelled ON dibs_finished (id) WHERE state = 'cancelled';

-- The days of dibs_finished with their lowest and highest ids: a lookup by id only reads days that can have it.
-- `pruned` is a JSON array of the queues that have nothing left to delete there.
CREATE TABLE dibs_days (
    day INTEGER PRIMARY KEY,
    lowest TEXT NOT NULL,
    highest TEXT NOT NULL,
    pruned TEXT NOT NULL
);

CREATE TABLE dibs_dead (
    id TEXT PRIMARY KEY,
    day INTEGER NOT NULL,
    track INTEGER NOT NULL,
    state TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER,
    lease INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    worker TEXT,
    sequence INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    progress TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL,
    workflow TEXT
) WITHOUT ROWID;
CREATE INDEX dibs_dead_days ON dibs_dead (day, id);
CREATE INDEX dibs_dead_members ON dibs_dead (workflow, id, state) WHERE workflow IS NOT NULL;

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

-- At most one row: the current leader, and until when.
CREATE TABLE dibs_term (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);

-- `record` is JSON; `cursor` is where the next step of the chore starts.
CREATE TABLE dibs_chores (
    name TEXT PRIMARY KEY,
    record TEXT NOT NULL,
    cursor TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE dibs_audit (
    n INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    entry TEXT NOT NULL
);

-- Token buckets of all scopes, as `dibs.core.limits.Bucket` describes them. `whose` is a task's name, a partition, a
-- client, or '' for the queue. `refill_at`: when a partition that has pending tasks and no token will have one.
CREATE TABLE dibs_buckets (
    queue TEXT NOT NULL,
    scope TEXT NOT NULL,
    whose TEXT NOT NULL,
    level INTEGER NOT NULL,
    at INTEGER NOT NULL,
    refill_at INTEGER,
    PRIMARY KEY (queue, scope, whose)
) WITHOUT ROWID;
CREATE INDEX dibs_refills ON dibs_buckets (queue, refill_at) WHERE refill_at IS NOT NULL;

-- Shares of fair queues: their virtual times (-1: none yet), and how many pending tasks they have in fair tracks.
CREATE TABLE dibs_shares (
    queue TEXT NOT NULL,
    share TEXT NOT NULL,
    virtual_time INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    PRIMARY KEY (queue, share)
) WITHOUT ROWID;
CREATE INDEX dibs_share_order ON dibs_shares (queue, virtual_time, share) WHERE pending > 0;

-- Turns: one row for each share that may have a task for claims in a fair track, with a copy of its virtual time, or 0
-- if the queue's clock has passed that. Added when a task comes, deleted when a claim finds nothing.
CREATE TABLE dibs_turns (
    track INTEGER NOT NULL,
    share TEXT NOT NULL,
    virtual_time INTEGER NOT NULL,
    PRIMARY KEY (track, share)
) WITHOUT ROWID;
CREATE INDEX dibs_turn_order ON dibs_turns (track, virtual_time, share);

-- Edges: `dependent` waits for `prerequisite` while `open` is 1. `slot` is the edge's place among those of its
-- dependent, `weight` the dependent's urgency. Edges stay as long as their dependent. `open` is in the indexes so that
-- reading them does not need the table.
CREATE TABLE dibs_edges (
    dependent TEXT NOT NULL,
    slot INTEGER NOT NULL,
    prerequisite TEXT NOT NULL,
    rule TEXT NOT NULL,
    weight INTEGER NOT NULL,
    open INTEGER NOT NULL,
    PRIMARY KEY (dependent, slot)
) WITHOUT ROWID;
CREATE INDEX dibs_followed ON dibs_edges (prerequisite, weight DESC, dependent, slot, rule, open) WHERE open = 1;
CREATE INDEX dibs_needed ON dibs_edges (dependent, slot, open) WHERE open = 1;

-- The index of id blocks, for searches: tasks with this trait (a queue and name, a tenant, a partition, a key, a worker,
-- a time of creation) have ids that begin with this block. Written with the task, deleted once the block is empty.
CREATE TABLE dibs_blocks (
    trait TEXT NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (trait, block)
) WITHOUT ROWID;

-- Steps: work that goes on later, oldest first. `step` is JSON. Prompt steps have no id, and are deleted at their end.
CREATE TABLE dibs_steps (
    n INTEGER PRIMARY KEY,
    id TEXT,
    ended_at INTEGER,
    step TEXT NOT NULL
);
CREATE INDEX dibs_prompt_steps ON dibs_steps (n) WHERE id IS NULL;
CREATE UNIQUE INDEX dibs_background_steps ON dibs_steps (id) WHERE id IS NOT NULL;
CREATE INDEX dibs_open_steps ON dibs_steps (n) WHERE id IS NOT NULL AND ended_at IS NULL;

-- `total` counts all members, including deleted ones.
CREATE TABLE dibs_workflows (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    total INTEGER NOT NULL
) WITHOUT ROWID;

-- `record` is JSON; next_fire_at and paused are copies for searching.
CREATE TABLE dibs_schedules (
    name TEXT PRIMARY KEY,
    next_fire_at INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX dibs_fires ON dibs_schedules (next_fire_at, name) WHERE paused = 0;

-- Events, appended only while somebody subscribes. No number is given twice, even if all events are deleted. Of a task:
-- its track, its id, and how long a run took. `data` is a JSON object.
CREATE TABLE dibs_events (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    track INTEGER,
    queue TEXT,
    task TEXT,
    worker TEXT,
    took INTEGER,
    data TEXT
);

-- Subscribers: what each wants to be written (JSON), and until when.
CREATE TABLE dibs_watches (
    subscriber TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    watch TEXT NOT NULL
) WITHOUT ROWID;
