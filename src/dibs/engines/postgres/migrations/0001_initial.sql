-- The layout of a new store. Everything is in one schema of its own; `statements` fills in its name.
--
-- Names that order things are compared byte by byte (COLLATE "C"), as Python compares them. Instants are integer
-- microseconds. JSON that no statement reads is bytea, exactly as Python wrote it.

-- One row; a schema that has it is a Dibs store. `layout` is the last migration, and code that knows at least
-- `oldest_reader` may use the store. `generation` grows with every change of queues and tracks, which outdates cached
-- copies. `identity` is the random id of this store. `events_trimmed` is the number of the last event that was deleted.
CREATE TABLE {schema}.store (
    one integer PRIMARY KEY CHECK (one = 1),
    layout integer NOT NULL,
    oldest_reader integer NOT NULL,
    generation bigint NOT NULL,
    identity text NOT NULL,
    events_trimmed bigint NOT NULL
);
INSERT INTO {schema}.store VALUES (1, 1, 1, 1, gen_random_uuid()::text, 0);

-- The fingerprints of functions, and the day of their last known use. Those that have been unused for long are dropped.
CREATE TABLE {schema}.code_versions (
    version text COLLATE "C" PRIMARY KEY,
    used_at timestamptz NOT NULL
);

-- `settings` is JSON. `epoch` is the version of the settings that last changed the order of tasks. `clock` is the
-- virtual time of a fair queue.
CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    settings bytea NOT NULL,
    epoch integer NOT NULL,
    clock bigint NOT NULL DEFAULT 0
);

-- A track is what one claim can read from end to end: tasks of one kind, in one lane of one queue, ranked under one
-- epoch of its settings. `fair`: its tasks have shares. `band`: the priority that all of its tasks are ranked by, in
-- the order of their arrival; -1 to -4 for tasks of any priority of a tier, or that have come back
-- (`dibs.engines.decisions.facts.MIXED`). Tracks are never deleted: ended tasks still name them; `retired`: nothing waits
-- in it or ever will.
CREATE TABLE {schema}.tracks (
    track integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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

-- Counts: the folded ones, and later changes. `what` is a state (with the day of the end for completed and cancelled
-- tasks, which are dropped by the day) or a counter; the count is of `track` or, where there is none, of `queue`.
-- `xid`: the transaction that wrote a change, so that folded changes can be skipped although their rows can't be
-- cleaned up yet.
CREATE TABLE {schema}.counts (
    what text NOT NULL,
    track integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    day integer NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (what, track, queue, day)
);
CREATE TABLE {schema}.count_changes (
    what text NOT NULL,
    track integer NOT NULL DEFAULT 0,
    queue text COLLATE "C" NOT NULL DEFAULT '',
    day integer NOT NULL DEFAULT 0,
    n bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX unfolded ON {schema}.count_changes (xid);

-- Unfinished tasks. Columns are what statements read or change in bulk; the rest is JSON in `facts`. rank = ready_at +
-- offset. `progress` is JSON: [fraction, message]. `share`: the tenant in whose turn it is claimed. `gate`: 0 if its
-- moves concern no others; 1 if they do (its partition is limited, or its queue fair: then they need the queue's lock);
-- 2 while such a pending task is kept from claims because others of its partition go first. `partition` is the queue's
-- name, a space, and the partition. `followed`: others wait, or have waited, for it. `version` grows with every change
-- that neither the state nor the lease number shows, except of `gate` and `followed`, and goes with the task from table
-- to table. A blocked task has no due_at here, so that nothing promotes it: it is in its facts. `batch`: where it says
-- when the lease of a running task ends, after its first extension; lease_expires_at is then later than any instant.
CREATE TABLE {schema}.tasks (
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
    batch bigint,
    track integer NOT NULL,
    lease integer NOT NULL DEFAULT 0,
    version integer NOT NULL DEFAULT 0,
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
CREATE INDEX pending ON {schema}.tasks (track, share, rank, id) WHERE state = 'pending' AND gate < 2;
-- Gated tasks of a track, for reads; and those of partitions, to ungate those whose turn has come. Where these are
-- meant, statements say "gate > 1", which to the planner is not "gate = 2": it can't read a whole track for a partition,
-- nor all partitions for a track.
CREATE INDEX gated ON {schema}.tasks (track, share, rank, id) WHERE state = 'pending' AND gate = 2;
CREATE INDEX gated_groups ON {schema}.tasks (partition, track, share, rank, id)
    WHERE state = 'pending' AND gate > 1 AND partition IS NOT NULL;
CREATE INDEX due ON {schema}.tasks (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX due_guarded ON {schema}.tasks (due_at) WHERE due_at IS NOT NULL AND gate > 0;
-- Running tasks of a track: those that limits count, and those whose lease has ended. Without the id: a planner that
-- can skip columns would use it to find tasks by id.
CREATE INDEX leases ON {schema}.tasks (track, lease_expires_at) WHERE state = 'running';
CREATE INDEX batched ON {schema}.tasks (batch) WHERE batch IS NOT NULL;
CREATE INDEX reranks ON {schema}.tasks (rerank_at, id) WHERE rerank_at IS NOT NULL AND state <> 'running';
-- Tasks of a track that are not due, and those that wait for others.
CREATE INDEX later ON {schema}.tasks (track, state, id) WHERE due_at IS NOT NULL;
CREATE INDEX blocked ON {schema}.tasks (track) WHERE state = 'blocked';
CREATE INDEX expiries ON {schema}.tasks (expires_at, id) WHERE expires_at IS NOT NULL AND state <> 'running';
-- The pending tasks of a partition in order, and its running ones, which are its used slots.
CREATE INDEX partitions ON {schema}.tasks (partition, state, track, share, rank, id) WHERE partition IS NOT NULL;
CREATE INDEX members ON {schema}.tasks (workflow, id) WHERE workflow IS NOT NULL;

-- Running tasks whose leases are extended together, so that a heartbeat writes one row. Numbers never come again.
CREATE TABLE {schema}.batches (
    batch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    expires_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX batch_ends ON {schema}.batches (expires_at, batch);

-- Completed and cancelled tasks, a partition for each UTC day of their end (finished_DAY), so that retention drops
-- them. Tasks that end on a day without a partition go to the default one. The check lets the planner leave the table
-- out of searches for other states.
CREATE TABLE {schema}.finished (
    id uuid NOT NULL,
    rank bigint NOT NULL,
    ready_at bigint,
    started_at bigint,
    finished_at bigint NOT NULL,
    created_at bigint NOT NULL,
    sequence bigint NOT NULL,
    day integer NOT NULL,
    track integer NOT NULL,
    lease integer NOT NULL,
    version integer NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('completed', 'cancelled')),
    reason text COLLATE "C",
    worker text COLLATE "C",
    workflow uuid,
    progress bytea,
    result bytea,
    args bytea NOT NULL,
    facts bytea NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX finished_ids ON {schema}.finished (id);
-- For searches: cancelled tasks are few among the completed ones, which this index does not concern.
CREATE INDEX finished_cancelled ON {schema}.finished (id) WHERE state = 'cancelled';
CREATE INDEX finished_members ON {schema}.finished (workflow, id) WHERE workflow IS NOT NULL;
CREATE TABLE {schema}.finished_other PARTITION OF {schema}.finished DEFAULT;

CREATE TABLE {schema}.dead (
    id uuid PRIMARY KEY,
    rank bigint NOT NULL,
    ready_at bigint,
    started_at bigint,
    finished_at bigint NOT NULL,
    created_at bigint NOT NULL,
    sequence bigint NOT NULL,
    day integer NOT NULL,
    track integer NOT NULL,
    lease integer NOT NULL,
    version integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    worker text COLLATE "C",
    workflow uuid,
    progress bytea,
    result bytea,
    args bytea NOT NULL,
    facts bytea NOT NULL
);
CREATE INDEX dead_days ON {schema}.dead (day, id);
CREATE INDEX dead_members ON {schema}.dead (workflow, id) WHERE workflow IS NOT NULL;

CREATE TABLE {schema}.history (
    task uuid NOT NULL,
    n integer NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (task, n)
);

-- Idempotency keys (as JSON text), held while their task is unfinished or until `held_until`.
CREATE TABLE {schema}.keys (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task uuid NOT NULL,
    fingerprint text NOT NULL,
    held_until bigint NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX keys_held ON {schema}.keys (held_until, queue, key);

-- Token buckets, as `dibs.core.limits.Bucket` describes them. `whose` is a task's name, a partition, a client, or ''
-- for the queue. `refill_at`: when a partition that has pending tasks and no token will have one.
CREATE TABLE {schema}.buckets (
    queue text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    whose text COLLATE "C" NOT NULL,
    level bigint NOT NULL,
    at bigint NOT NULL,
    refill_at bigint,
    PRIMARY KEY (queue, scope, whose)
);
CREATE INDEX refills ON {schema}.buckets (queue, refill_at) WHERE refill_at IS NOT NULL;

-- Shares of fair queues: their virtual times (-1: none yet), and how many pending tasks they have in fair tracks.
CREATE TABLE {schema}.shares (
    queue text COLLATE "C" NOT NULL,
    share text COLLATE "C" NOT NULL,
    virtual_time bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, share)
);
CREATE INDEX share_order ON {schema}.shares (queue, virtual_time, share) WHERE pending > 0;

-- Turns: one row for each share that may have a task for claims in a fair track, with a copy of its virtual time, or 0
-- if the queue's clock has passed that. Added when a task comes, deleted when a claim finds nothing.
CREATE TABLE {schema}.turns (
    track int NOT NULL,
    share text COLLATE "C" NOT NULL,
    virtual_time bigint NOT NULL,
    PRIMARY KEY (track, share)
);
CREATE INDEX turn_order ON {schema}.turns (track, virtual_time, share);

-- Edges: `dependent` waits for `prerequisite` while it is open. `slot` is the edge's place among those of its
-- dependent, `weight` the dependent's urgency. Edges stay as long as their dependent.
CREATE TABLE {schema}.edges (
    dependent uuid NOT NULL,
    slot integer NOT NULL,
    prerequisite uuid NOT NULL,
    rule text COLLATE "C" NOT NULL,
    weight integer NOT NULL,
    open boolean NOT NULL,
    PRIMARY KEY (dependent, slot)
);
CREATE INDEX followed ON {schema}.edges (prerequisite, weight DESC, dependent, slot) WHERE open;
CREATE INDEX needed ON {schema}.edges (dependent, slot) WHERE open;

-- The index of id blocks, for searches: tasks with this trait (a queue and name, a tenant, a partition, a key, a worker,
-- a time of creation) have ids that begin with this block. Written with the task, deleted once the block is empty. A
-- pair may be there more than once: a unique index would let transactions wait for each other.
CREATE TABLE {schema}.blocks (
    trait text COLLATE "C" NOT NULL,
    block bigint NOT NULL
);
CREATE INDEX block_traits ON {schema}.blocks (trait, block);

-- Steps: work that goes on later, oldest first. `step` is JSON. Prompt steps have no id, and are deleted at their end.
CREATE TABLE {schema}.steps (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid,
    ended_at bigint,
    step bytea NOT NULL
);
CREATE INDEX prompt_steps ON {schema}.steps (n) WHERE id IS NULL;
CREATE UNIQUE INDEX background_steps ON {schema}.steps (id) WHERE id IS NOT NULL;
CREATE INDEX open_steps ON {schema}.steps (n) WHERE id IS NOT NULL AND ended_at IS NULL;

-- `total` counts all members, including deleted ones.
CREATE TABLE {schema}.workflows (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    created_at bigint NOT NULL,
    total bigint NOT NULL
);

-- `record` is JSON; next_fire_at and paused are copies for searching.
CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    next_fire_at bigint NOT NULL,
    paused boolean NOT NULL,
    record bytea NOT NULL
);
CREATE INDEX fires ON {schema}.schedules (next_fire_at, name) WHERE NOT paused;

-- `presence`: since when sessions last at the server where the worker's process holds its lock (see the statement
-- `hold`), NULL if it holds none. Locks end with their server: a worker is absent there only after it has come back.
CREATE TABLE {schema}.workers (
    id text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    expires_at bigint NOT NULL,
    record bytea NOT NULL,
    presence timestamptz
);

CREATE TABLE {schema}.minutes (
    minute bigint NOT NULL,
    worker text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tier text COLLATE "C" NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (minute, worker, queue, tier)
);

-- At most one row: the current leader, and until when.
CREATE TABLE {schema}.term (
    one integer PRIMARY KEY CHECK (one = 1),
    number bigint NOT NULL,
    worker text NOT NULL,
    expires_at bigint NOT NULL
);

-- `record` is JSON; `cursor` is where the next step of the chore starts. For the chore that folds counts: all changes
-- by transactions before `folded_until` are folded; `folded_by` is the transaction that wrote this. If another one
-- wrote the row last, it means nothing: the store may have been restored from a dump, on a server with other
-- transaction numbers.
CREATE TABLE {schema}.chores (
    name text COLLATE "C" PRIMARY KEY,
    record bytea NOT NULL,
    cursor text NOT NULL DEFAULT '',
    folded_until xid8,
    folded_by xid8
);

CREATE TABLE {schema}.audit (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    entry bytea NOT NULL
);

-- Events, appended only while somebody subscribes. Of a task: its track, its id, and how long a run took. `data` is a JSON
-- object. A transaction that appends some first takes a lock that names the last number given by then (see the function
-- `begin_events`): so a reader knows up to which number no event can appear any more.
CREATE TABLE {schema}.events (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    took bigint,
    track integer,
    task uuid,
    type text COLLATE "C" NOT NULL,
    queue text COLLATE "C",
    worker text COLLATE "C",
    data text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);

-- Subscribers: what each wants to be written (JSON), and until when.
CREATE TABLE {schema}.watches (
    subscriber text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL,
    watch text NOT NULL
);

-- Views for people, with instants as times and JSON as jsonb. No statement of Dibs uses them: they can be dropped, and
-- granted to any role.

-- An instant (integer microseconds) as a time, exact to the microsecond. Inlined.
CREATE FUNCTION {schema}.to_time(instant bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT timestamptz 'epoch' + instant * interval '1 microsecond'
$$;

-- JSON text as jsonb, whatever it contains: users may have stored what jsonb refuses. NUL characters become replacement
-- characters; text that is not JSON for this server becomes a string of itself.
CREATE FUNCTION {schema}.to_json(stored bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(stored, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    BEGIN
        RETURN regexp_replace(convert_from(stored, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1\ufffd', 'g')::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN to_jsonb(encode(stored, 'escape'));
    END;
END
$$;

-- Every task, in any place. The parts have no conditions of their own and equal types, so that the planner takes the
-- view apart: a condition on `id` seeks in each part, one on `state` leaves out the parts that can't have it, one on
-- `queue` and running or blocked seeks by track, and ORDER BY id DESC LIMIT n merges the newest of each part. OFFSET 0
-- keeps the facts from being read once for each column.
CREATE VIEW {schema}.all_tasks AS
SELECT
    t.id, s.queue, s.name, t.state, f.facts ->> 'reason' AS reason, nullif(f.facts ->> 'note', '') AS note,
    coalesce((f.facts -> 'spec' ->> 'priority')::int, 50) AS priority,
    {schema}.to_time(t.created_at) AS created_at,
    {schema}.to_time(coalesce(t.due_at, (f.facts ->> 'not_before')::bigint)) AS due_at,
    {schema}.to_time(t.ready_at) AS ready_at,
    {schema}.to_time(t.started_at) AS started_at,
    {schema}.to_time(t.finished_at) AS finished_at,
    {schema}.to_time(
        greatest(t.created_at, t.started_at, t.finished_at, (f.facts ->> 'changed_at')::bigint)
    ) AS updated_at,
    {schema}.to_time(
        coalesce((SELECT b.expires_at FROM {schema}.batches AS b WHERE b.batch = t.batch), t.lease_expires_at)
    ) AS lease_expires_at,
    {schema}.to_time((f.facts -> 'spec' ->> 'deadline')::bigint) AS deadline,
    {schema}.to_time((f.facts -> 'spec' ->> 'expires_at')::bigint) AS expires_at,
    t.worker, t.lease,
    coalesce((f.facts ->> 'attempts')::int, 0) AS attempts,
    coalesce((f.facts ->> 'losses')::int, 0) AS losses,
    f.facts ->> 'cancel_reason' AS cancel_asked,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'type' END AS error_type,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'message' END AS error_message,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'traceback' END AS error_traceback,
    CASE
        WHEN t.state <> 'completed' THEN ({schema}.to_json(t.progress) ->> 0)::float8 WHEN t.progress IS NOT NULL THEN 1
    END AS progress,
    nullif({schema}.to_json(t.progress) ->> 1, '') AS progress_message,
    f.facts -> 'spec' ->> 'partition' AS partition,
    nullif(f.facts -> 'spec' ->> 'tenant', '') AS tenant,
    t.workflow,
    f.facts -> 'spec' ->> 'key' AS key,
    s.requires,
    f.facts -> 'spec' ->> 'parent' AS parent,
    coalesce(f.facts -> 'spec' -> 'metadata', '{}') AS metadata,
    {schema}.to_json(t.args) AS args,
    {schema}.to_json(t.result) AS result
FROM (
    SELECT
        id, track, state, created_at, due_at, ready_at, started_at, NULL::bigint AS finished_at, lease_expires_at, batch,
        worker, lease, progress, workflow, args, NULL::bytea AS result, facts
    FROM {schema}.tasks
    UNION ALL
    SELECT
        id, track, 'dead'::text, created_at, NULL::bigint, ready_at, started_at, finished_at, NULL::bigint, NULL::bigint,
        worker, lease, progress, workflow, args, result, facts
    FROM {schema}.dead
    UNION ALL
    SELECT
        id, track, state, created_at, NULL::bigint, ready_at, started_at, finished_at, NULL::bigint, NULL::bigint,
        worker, lease, progress, workflow, args, result, facts
    FROM {schema}.finished
) AS t
JOIN {schema}.tracks AS s ON s.track = t.track
CROSS JOIN LATERAL (SELECT {schema}.to_json(t.facts) AS facts OFFSET 0) AS f;

-- Dead tasks, and why they died.
CREATE VIEW {schema}.dead_letters AS
SELECT
    t.id, s.queue, s.name, t.reason, nullif(f.facts ->> 'note', '') AS note,
    f.facts -> 'failure' ->> 'type' AS error_type,
    f.facts -> 'failure' ->> 'message' AS error_message,
    f.facts -> 'failure' ->> 'traceback' AS error_traceback,
    coalesce((f.facts ->> 'attempts')::int, 0) AS attempts,
    coalesce((f.facts ->> 'losses')::int, 0) AS losses,
    coalesce((f.facts -> 'spec' ->> 'priority')::int, 50) AS priority,
    {schema}.to_time(t.created_at) AS created_at,
    {schema}.to_time(t.started_at) AS started_at,
    {schema}.to_time(t.finished_at) AS died_at,
    t.worker,
    nullif(f.facts -> 'spec' ->> 'tenant', '') AS tenant,
    t.workflow,
    f.facts -> 'spec' ->> 'key' AS key,
    coalesce(f.facts -> 'spec' -> 'metadata', '{}') AS metadata,
    {schema}.to_json(t.args) AS args
FROM {schema}.dead AS t
JOIN {schema}.tracks AS s ON s.track = t.track
CROSS JOIN LATERAL (SELECT {schema}.to_json(t.facts) AS facts OFFSET 0) AS f;

-- How many tasks each queue has in each state, from the counts kept with every move.
CREATE VIEW {schema}.queue_counts AS
SELECT s.queue, c.what AS state, sum(c.n)::bigint AS tasks
FROM (
    SELECT what, track, n FROM {schema}.counts WHERE track > 0
    UNION ALL
    SELECT what, track, n FROM {schema}.count_changes WHERE track > 0
) AS c
JOIN {schema}.tracks AS s ON s.track = c.track
WHERE c.what IN ('blocked', 'scheduled', 'pending', 'running', 'retrying', 'completed', 'cancelled', 'dead')
GROUP BY s.queue, c.what HAVING sum(c.n) <> 0;

-- The audit log: who did what, with what was before and after.
CREATE VIEW {schema}.audit_log AS
SELECT
    a.n, {schema}.to_time(a.at) AS at, e.entry ->> 'actor' AS actor, e.entry ->> 'act' AS act,
    e.entry ->> 'target' AS target, nullif(e.entry ->> 'detail', '') AS detail,
    coalesce(e.entry -> 'ids', '[]') AS ids,
    coalesce(e.entry -> 'before', '{}') AS before,
    coalesce(e.entry -> 'after', '{}') AS after
FROM {schema}.audit AS a
CROSS JOIN LATERAL (SELECT {schema}.to_json(a.entry) AS entry OFFSET 0) AS e;
