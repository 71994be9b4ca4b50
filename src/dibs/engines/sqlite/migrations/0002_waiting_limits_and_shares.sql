-- Tasks that wait for others, schedules, limits by name and partition, fair shares, expiry.

-- `share`: whose turn it is served in ('' unless the stream is fair). `gated`: 1 while a pending task is kept from claims
-- because others of its partition go first. `partition` is the queue's name, a space, and the partition. `workflow` is
-- the workflow it belongs to. A blocked task has no due_at here, so that nothing promotes it: it is in its facts.
-- Rebuilt, not altered: what is looked at must come before `args` and `facts`, which may be long.
CREATE TABLE dibs_new_tasks (
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
    share TEXT NOT NULL DEFAULT '',
    gated INTEGER NOT NULL DEFAULT 0,
    partition TEXT,
    expires_at INTEGER,
    workflow TEXT,
    progress TEXT,
    args TEXT NOT NULL,
    facts TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO dibs_new_tasks (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, progress, args, facts
)
SELECT
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, progress, args, facts
FROM dibs_tasks;
DROP TABLE dibs_tasks;
ALTER TABLE dibs_new_tasks RENAME TO dibs_tasks;

-- Claim order: what is gated lies apart from what claims read.
CREATE INDEX dibs_pending ON dibs_tasks (stream, gated, share, rank, id) WHERE state = 'pending';
CREATE INDEX dibs_due ON dibs_tasks (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX dibs_leases ON dibs_tasks (lease_expires_at, id) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX dibs_reranks ON dibs_tasks (rerank_at, id) WHERE rerank_at IS NOT NULL AND state <> 'running';
CREATE INDEX dibs_blocked ON dibs_tasks (stream, id) WHERE state = 'blocked';
CREATE INDEX dibs_expiries ON dibs_tasks (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';
-- The pending tasks of a partition in order, and its running ones, which are its slots.
CREATE INDEX dibs_partitions ON dibs_tasks (partition, state, stream, share, rank, id) WHERE partition IS NOT NULL;
CREATE INDEX dibs_members ON dibs_tasks (workflow, id, state) WHERE workflow IS NOT NULL;

ALTER TABLE dibs_dead ADD COLUMN workflow TEXT;
CREATE INDEX dibs_dead_members ON dibs_dead (workflow, id, state) WHERE workflow IS NOT NULL;
ALTER TABLE dibs_finished ADD COLUMN workflow TEXT;
CREATE INDEX dibs_finished_members ON dibs_finished (workflow, id, state) WHERE workflow IS NOT NULL;

-- `fair`: 1 if the queue shared its capacity between tenants when the stream's tasks were ranked. Only then have its
-- tasks shares.
CREATE TABLE dibs_new_streams (
    stream INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    requires TEXT NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    fair INTEGER NOT NULL,
    UNIQUE (queue, name, requires, lane, epoch, fair)
);
INSERT INTO dibs_new_streams SELECT stream, queue, name, requires, lane, epoch, 0 FROM dibs_streams;
DROP TABLE dibs_streams;
ALTER TABLE dibs_new_streams RENAME TO dibs_streams;

-- Token buckets of all scopes, as `dibs.core.limits.Bucket` describes them. `whose` is a task's name, a partition, a
-- client, or '' for the queue. `opens_at`: when a partition that has pending tasks and no token will have one.
CREATE TABLE dibs_buckets (
    queue TEXT NOT NULL,
    scope TEXT NOT NULL,
    whose TEXT NOT NULL,
    level INTEGER NOT NULL,
    at INTEGER NOT NULL,
    opens_at INTEGER,
    PRIMARY KEY (queue, scope, whose)
) WITHOUT ROWID;
CREATE INDEX dibs_openings ON dibs_buckets (queue, opens_at) WHERE opens_at IS NOT NULL;
INSERT INTO dibs_buckets (queue, scope, whose, level, at)
SELECT name, 'queue', '', bucket ->> 'level', bucket ->> 'at' FROM dibs_queues WHERE bucket IS NOT NULL;

-- `clock` is the virtual time of a fair queue.
ALTER TABLE dibs_queues DROP COLUMN bucket;
ALTER TABLE dibs_queues ADD COLUMN clock INTEGER NOT NULL DEFAULT 0;

-- Shares of fair queues: their tags in virtual time (-1: none yet), and how many pending tasks they have in fair streams.
CREATE TABLE dibs_shares (
    queue TEXT NOT NULL,
    share TEXT NOT NULL,
    tag INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    PRIMARY KEY (queue, share)
) WITHOUT ROWID;
CREATE INDEX dibs_share_tags ON dibs_shares (queue, tag, share) WHERE pending > 0;

-- Whose turn it is: one row for each share that may have a task for claims in a fair stream, with a copy of its tag,
-- or 0 if the queue's clock has passed that. Made when a task comes, removed when a claim finds nothing.
CREATE TABLE dibs_turns (
    stream INTEGER NOT NULL,
    share TEXT NOT NULL,
    tag INTEGER NOT NULL,
    PRIMARY KEY (stream, share)
) WITHOUT ROWID;
CREATE INDEX dibs_turn_order ON dibs_turns (stream, tag, share);

-- Edges: `dependent` waits for `prerequisite` while `open` is 1. `slot` is the edge's place among those of its dependent,
-- `weight` the dependent's urgency. Edges stay as long as their dependent. `open` is in the indexes so that a look at them
-- need not go on to the table.
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

-- What is left to be followed up, oldest first. `errand` is JSON.
CREATE TABLE dibs_errands (
    n INTEGER PRIMARY KEY,
    errand TEXT NOT NULL
);

-- `total` counts all members that there ever were.
CREATE TABLE dibs_workflows (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    total INTEGER NOT NULL
) WITHOUT ROWID;

-- `record` is JSON; next_fire_at and paused are copies to look for.
CREATE TABLE dibs_schedules (
    name TEXT PRIMARY KEY,
    next_fire_at INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX dibs_fires ON dibs_schedules (next_fire_at, name) WHERE paused = 0;

-- What tells this store from all others.
ALTER TABLE dibs_store ADD COLUMN identity TEXT NOT NULL DEFAULT '';
UPDATE dibs_store SET identity = lower(hex(randomblob(16)));
