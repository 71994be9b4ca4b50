-- The first layout. Everything is in one schema of its own; "dibs." stands for its name in all files.
--
-- Names that order things are compared byte by byte (COLLATE "C"), as Python compares them. Instants are integer
-- microseconds. JSON that no statement looks into is bytea: it is what Python wrote, to the bit.

-- One row; that it exists says that Dibs lives in this schema. `layout` is the last migration, and code that knows at
-- least `oldest_reader` may use the store. `generation` grows with every change of queues and streams, so that a cached
-- copy knows when it is old. `identity` tells this store from all others.
CREATE TABLE dibs.store (
    one integer PRIMARY KEY CHECK (one = 1),
    layout integer NOT NULL,
    oldest_reader integer NOT NULL,
    generation bigint NOT NULL,
    identity text NOT NULL
);
INSERT INTO dibs.store VALUES (1, 1, 1, 1, gen_random_uuid()::text);

-- `settings` is JSON. `epoch` is the version of the settings that last changed the order of tasks. `clock` is the
-- virtual time of a fair queue.
CREATE TABLE dibs.queues (
    name text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    settings bytea NOT NULL,
    epoch integer NOT NULL,
    clock bigint NOT NULL DEFAULT 0
);

-- A stream is what one claim can read from end to end: tasks of one kind, in one lane of one queue, ranked under one
-- epoch of its settings. `fair`: its tasks have shares. `band`: the priority that all of its tasks are ranked by, in
-- the order of their arrival; -1 for a stream of tasks of any priority, or that have come back. Streams stay: ended
-- tasks go on naming them; `retired`: nothing waits in it, and never will again.
CREATE TABLE dibs.streams (
    stream integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    requires text[] COLLATE "C" NOT NULL,
    lane integer NOT NULL,
    epoch integer NOT NULL,
    fair boolean NOT NULL,
    band integer NOT NULL,
    retired boolean NOT NULL DEFAULT false,
    UNIQUE (queue, name, requires, lane, epoch, fair, band)
);

-- Counts: what has been folded, and changes since then. `what` is a state (with the day of the end for completed and
-- cancelled tasks, which are dropped by the day) or a counter; either `stream` or, where there is none, `queue` says
-- whose.
CREATE TABLE dibs.tallies (
    what text NOT NULL,
    stream integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    day integer NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (what, stream, queue, day)
);
CREATE TABLE dibs.deltas (
    what text NOT NULL,
    stream integer NOT NULL DEFAULT 0,
    queue text COLLATE "C" NOT NULL DEFAULT '',
    day integer NOT NULL DEFAULT 0,
    n bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Unfinished tasks. Columns are what statements look at or change in bulk; the rest is JSON in `facts`. rank =
-- ready_at + offset. `progress` is JSON: [fraction, message]. `share`: whose turn it is served in. `gate`: 0 if its
-- moves concern nobody else; 1 if they do (its partition is limited, or its queue fair: then they need the queue's
-- lock); 2 while such a pending task is kept from claims because others of its partition go first. `partition` is the
-- queue's name, a space, and the partition. `followed`: others wait, or have waited, for it. A blocked task has no
-- due_at here, so that nothing promotes it: it is in its facts.
CREATE TABLE dibs.tasks (
    id uuid PRIMARY KEY,
    rank bigint NOT NULL,
    ready_at bigint,
    due_at bigint,
    rerank_at bigint,
    lease_for bigint NOT NULL,
    lease_expires_at bigint,
    started_at bigint,
    expires_at bigint,
    created_at bigint NOT NULL,
    sequence bigint NOT NULL DEFAULT 0,
    stream integer NOT NULL,
    lease integer NOT NULL DEFAULT 0,
    gate smallint NOT NULL DEFAULT 0,
    cancel boolean NOT NULL DEFAULT false,
    followed boolean NOT NULL DEFAULT false,
    state text COLLATE "C" NOT NULL,
    share text COLLATE "C" NOT NULL DEFAULT '',
    worker text COLLATE "C",
    partition text COLLATE "C",
    workflow uuid,
    progress bytea,
    args bytea NOT NULL,
    facts bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
-- Claim order.
CREATE INDEX pending ON dibs.tasks (stream, share, rank, id) WHERE state = 'pending' AND gate < 2;
-- What is kept from claims, for those who look.
CREATE INDEX gated ON dibs.tasks (stream, share, rank, id) WHERE state = 'pending' AND gate = 2;
CREATE INDEX due ON dibs.tasks (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX due_guarded ON dibs.tasks (due_at) WHERE due_at IS NOT NULL AND gate > 0;
-- Running tasks of a stream: those that are counted by limits, and those whose lease has ended. Without the id: a
-- planner that can skip columns would use it to find tasks by id.
CREATE INDEX leases ON dibs.tasks (stream, lease_expires_at) WHERE state = 'running';
CREATE INDEX reranks ON dibs.tasks (rerank_at, id) WHERE rerank_at IS NOT NULL AND state <> 'running';
-- Tasks of a stream that wait for their time, and those that wait for others.
CREATE INDEX later ON dibs.tasks (stream) WHERE due_at IS NOT NULL;
CREATE INDEX blocked ON dibs.tasks (stream) WHERE state = 'blocked';
CREATE INDEX expiries ON dibs.tasks (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';
-- The pending tasks of a partition in order, and its running ones, which are its slots.
CREATE INDEX partitions ON dibs.tasks (partition, state, stream, share, rank, id) WHERE partition IS NOT NULL;
CREATE INDEX members ON dibs.tasks (workflow, id) WHERE workflow IS NOT NULL;

-- Completed and cancelled tasks, a partition for each UTC day of their end (finished_DAY), so that retention drops
-- them. What ends on a day that has no partition goes to the last one. The check lets the planner leave the table out
-- where other states are looked for.
CREATE TABLE dibs.finished (
    id uuid NOT NULL,
    rank bigint NOT NULL,
    ready_at bigint,
    started_at bigint,
    finished_at bigint NOT NULL,
    created_at bigint NOT NULL,
    sequence bigint NOT NULL,
    day integer NOT NULL,
    stream integer NOT NULL,
    lease integer NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('completed', 'cancelled')),
    reason text COLLATE "C",
    worker text COLLATE "C",
    workflow uuid,
    progress bytea,
    result bytea,
    args bytea NOT NULL,
    facts bytea NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX finished_ids ON dibs.finished (id);
CREATE INDEX finished_members ON dibs.finished (workflow, id) WHERE workflow IS NOT NULL;
CREATE TABLE dibs.finished_other PARTITION OF dibs.finished DEFAULT;

CREATE TABLE dibs.dead (
    id uuid PRIMARY KEY,
    rank bigint NOT NULL,
    ready_at bigint,
    started_at bigint,
    finished_at bigint NOT NULL,
    created_at bigint NOT NULL,
    sequence bigint NOT NULL,
    day integer NOT NULL,
    stream integer NOT NULL,
    lease integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    worker text COLLATE "C",
    workflow uuid,
    progress bytea,
    result bytea,
    args bytea NOT NULL,
    facts bytea NOT NULL
);
CREATE INDEX dead_days ON dibs.dead (day, id);
CREATE INDEX dead_members ON dibs.dead (workflow, id) WHERE workflow IS NOT NULL;

CREATE TABLE dibs.history (
    task uuid NOT NULL,
    n integer NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (task, n)
);

-- Idempotency keys (as JSON text), held while their task is unfinished or until `held_until`.
CREATE TABLE dibs.keys (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task uuid NOT NULL,
    fingerprint text NOT NULL,
    held_until bigint NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX keys_held ON dibs.keys (held_until, queue, key);

-- Token buckets, as `dibs.core.limits.Bucket` describes them. `whose` is a task's name, a partition, a client, or ''
-- for the queue. `opens_at`: when a partition that has pending tasks and no token will have one.
CREATE TABLE dibs.buckets (
    queue text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    whose text COLLATE "C" NOT NULL,
    level bigint NOT NULL,
    at bigint NOT NULL,
    opens_at bigint,
    PRIMARY KEY (queue, scope, whose)
);
CREATE INDEX openings ON dibs.buckets (queue, opens_at) WHERE opens_at IS NOT NULL;

-- Shares of fair queues: their tags in virtual time, and how many pending tasks they have in fair streams.
CREATE TABLE dibs.shares (
    queue text COLLATE "C" NOT NULL,
    share text COLLATE "C" NOT NULL,
    tag bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, share)
);
CREATE INDEX turns ON dibs.shares (queue, tag, share) WHERE pending > 0;

-- Edges: `dependent` waits for `prerequisite` while it is open. `slot` is the edge's place among those of its
-- dependent, `weight` the dependent's urgency. Edges stay as long as their dependent.
CREATE TABLE dibs.edges (
    dependent uuid NOT NULL,
    slot integer NOT NULL,
    prerequisite uuid NOT NULL,
    rule text COLLATE "C" NOT NULL,
    weight integer NOT NULL,
    open boolean NOT NULL,
    PRIMARY KEY (dependent, slot)
);
CREATE INDEX followed ON dibs.edges (prerequisite, weight DESC, dependent, slot) WHERE open;
CREATE INDEX needed ON dibs.edges (dependent, slot) WHERE open;

-- What is left to be followed up, oldest first. `errand` is JSON.
CREATE TABLE dibs.errands (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    errand bytea NOT NULL
);

-- `total` counts all members that there ever were.
CREATE TABLE dibs.workflows (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    created_at bigint NOT NULL,
    total bigint NOT NULL
);

-- `record` is JSON; next_fire_at and paused are copies to look for.
CREATE TABLE dibs.schedules (
    name text COLLATE "C" PRIMARY KEY,
    next_fire_at bigint NOT NULL,
    paused boolean NOT NULL,
    record bytea NOT NULL
);
CREATE INDEX fires ON dibs.schedules (next_fire_at, name) WHERE NOT paused;

CREATE TABLE dibs.workers (
    id text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    expires_at bigint NOT NULL,
    record bytea NOT NULL
);

CREATE TABLE dibs.minutes (
    minute bigint NOT NULL,
    worker text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tier text COLLATE "C" NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (minute, worker, queue, tier)
);

-- At most one row: who leads, and until when.
CREATE TABLE dibs.term (
    one integer PRIMARY KEY CHECK (one = 1),
    number bigint NOT NULL,
    worker text NOT NULL,
    expires_at bigint NOT NULL
);

-- `record` is JSON; `cursor` is where the next step of the chore goes on.
CREATE TABLE dibs.chores (
    name text COLLATE "C" PRIMARY KEY,
    record bytea NOT NULL,
    cursor bytea
);

CREATE TABLE dibs.audit (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    entry bytea NOT NULL
);
