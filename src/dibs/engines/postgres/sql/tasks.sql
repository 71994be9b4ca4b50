-- name: find
-- Tasks by id, in any place. Takes ids. Returns the columns that every statement about tasks returns. See
-- functions/tasks.sql.
SELECT * FROM {schema}.find_tasks_{version}($1::uuid[]);

-- name: lock
-- Lock tasks in any place, in order of id. Takes ids. Returns the columns of `find`.
SELECT * FROM {schema}.lock_tasks_{version}($1::uuid[]);

-- name: save_tasks
-- Update unfinished tasks. Takes columns, and the lease numbers, states and versions that they were loaded with: the
-- fence is in the statement, and the number of written rows shows whether one differs. `followed` stays as it was, and so
-- does the end of a lease, which others may extend, and which may be its batch's. Not an UPDATE with a join, for which the
-- planner may read all tasks: each is found by id, and conflicts.
INSERT INTO {schema}.tasks AS t (
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gate, partition, expires_at, workflow, version, progress, args, facts, created_at
)
SELECT
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gate, partition, expires_at, workflow, version, progress, args, facts, created_at
FROM unnest(
    $1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::boolean[], $15::text[], $16::smallint[], $17::text[],
    $18::bigint[], $19::uuid[], $20::int[], $21::bytea[], $22::bytea[], $23::bytea[], $24::bigint[], $25::int[],
    $26::text[], $27::int[]
) AS new (
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gate, partition, expires_at, workflow, version, progress, args, facts, created_at,
    old_lease, old_state, old_version
)
WHERE (
    SELECT s.lease = new.old_lease AND s.state = new.old_state AND s.version = new.old_version
    FROM {schema}.tasks AS s WHERE s.id = new.id FOR UPDATE
)
ON CONFLICT (id) DO UPDATE SET
    track = excluded.track, state = excluded.state, rank = excluded.rank, ready_at = excluded.ready_at,
    due_at = excluded.due_at, rerank_at = excluded.rerank_at, lease = excluded.lease,
    lease_for = excluded.lease_for,
    lease_expires_at = CASE WHEN excluded.state = t.state THEN t.lease_expires_at ELSE excluded.lease_expires_at END,
    batch = CASE WHEN excluded.state = 'running' THEN t.batch END,
    started_at = excluded.started_at,
    worker = excluded.worker, sequence = excluded.sequence, cancel = excluded.cancel, share = excluded.share,
    gate = excluded.gate, partition = excluded.partition, expires_at = excluded.expires_at,
    workflow = excluded.workflow, version = excluded.version, progress = excluded.progress, args = excluded.args,
    facts = excluded.facts;

-- name: save_dead
-- Store dead tasks one by one. Takes the columns of `ended_columns`.
INSERT INTO {schema}.dead (
    id, day, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, result,
    args, facts, workflow, reason, created_at
)
SELECT * FROM unnest(
    $1::uuid[], $2::int[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[],
    $10::text[], $11::bigint[], $12::int[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[], $17::uuid[],
    $18::text[], $19::bigint[]
);

-- name: save_finished
-- Store finished tasks one by one. Takes the columns of `ended_columns`.
INSERT INTO {schema}.finished (
    id, day, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, result,
    args, facts, workflow, reason, created_at
)
SELECT * FROM unnest(
    $1::uuid[], $2::int[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[],
    $10::text[], $11::bigint[], $12::int[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[], $17::uuid[],
    $18::text[], $19::bigint[]
);

-- name: delete_tasks
-- Delete unfinished tasks. Takes ids, lease numbers, states, versions as they were loaded; a task that differs stays.
-- Driven by the primary key, the rest compared by a hashed lookup.
DELETE FROM {schema}.tasks AS t
WHERE t.id = ANY ($1::uuid[]) AND (
    (t.id, t.lease, t.state, t.version) IN (SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[]))
) IS TRUE;

-- name: delete_dead
-- Delete dead tasks. Takes the same as `delete_tasks`.
DELETE FROM {schema}.dead AS t
WHERE t.id = ANY ($1::uuid[]) AND (
    (t.id, t.lease, t.state, t.version) IN (SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[]))
) IS TRUE;

-- name: delete_finished
-- Delete finished tasks. Takes the same as `delete_tasks`, after the days.
DELETE FROM {schema}.finished AS t
USING unnest($1::int[], $2::uuid[], $3::int[], $4::text[], $5::int[]) AS d (day, id, lease, state, version)
WHERE t.day = d.day AND t.id = d.id AND t.lease = d.lease AND t.state = d.state AND t.version = d.version;

-- name: purge_tasks
-- Delete unfinished tasks, whatever they contain. Takes ids.
DELETE FROM {schema}.tasks WHERE id = ANY ($1::uuid[]);

-- name: purge_dead
-- Delete dead tasks, whatever they contain. Takes ids.
DELETE FROM {schema}.dead WHERE id = ANY ($1::uuid[]);

-- name: purge_finished
-- Delete finished tasks, whatever they contain. Takes days, ids.
DELETE FROM {schema}.finished AS f USING unnest($1::int[], $2::uuid[]) AS d (day, id) WHERE f.day = d.day AND f.id = d.id;

-- name: waiting_locked
-- Some waiting tasks of some tracks, locked: pending ones, those that are not due, blocked ones. Takes tracks, limit,
-- ids to skip. Returns the columns of `find`. Reads a range of `pending`, `gated`, `later` and `blocked` for each
-- track.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(
    SELECT w.id
    FROM unnest($1::int[]) AS s (track)
    CROSS JOIN LATERAL (
        (
            SELECT p.id FROM {schema}.tasks AS p
            WHERE p.track = s.track AND p.state = 'pending' AND p.gate < 2
              AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM {schema}.tasks AS p
            WHERE p.track = s.track AND p.state = 'pending' AND p.gate = 2
              AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM {schema}.tasks AS p
            WHERE p.track = s.track AND p.due_at IS NOT NULL AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
        UNION ALL
        (
            SELECT p.id FROM {schema}.tasks AS p
            WHERE p.track = s.track AND p.state = 'blocked' AND (p.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
            LIMIT $2::int
        )
    ) AS w
    LIMIT $2::int
))
AND t.track = ANY ($1::int[]) AND t.state <> 'running'
ORDER BY t.id FOR UPDATE;

-- name: expired
-- Running tasks whose lease has ended by an instant, longest ago first, locked. Takes the instant, limit, all tracks, the
-- expiry to start at, ids to skip. Returns the columns of `find`. See functions/tasks.sql.
SELECT * FROM {schema}.expired_tasks_{version}($1::bigint, $2::int, $3::int[], $4::bigint, $5::uuid[]);

-- name: running_of
-- Running tasks of some workers, locked, without those that are locked already. Takes workers, limit, all tracks, ids
-- to skip. Returns the columns of `find`. Reads `leases` for each track, all running tasks: only when a worker is lost.
-- A row is checked again once it is locked, in a CASE, as in `expired`, so that ids are looked up.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM unnest($3::int[]) AS s (track)
    CROSS JOIN LATERAL (
        SELECT id FROM {schema}.tasks
        WHERE track = s.track AND state = 'running' AND worker = ANY ($1::text[])
          AND (id IN (SELECT unnest($4::uuid[]))) IS NOT TRUE
        ORDER BY lease_expires_at LIMIT $2::int
    ) AS l
    LIMIT $2::int
)) AND CASE WHEN t.state = 'running' THEN t.worker = ANY ($1::text[]) END
ORDER BY t.id FOR UPDATE SKIP LOCKED;

-- name: has_running
-- Which of some workers have running tasks left. Takes workers, all tracks, ids to skip. Returns workers. Reads as
-- `running_of`.
SELECT w.worker FROM unnest($1::text[]) AS w (worker)
WHERE EXISTS (
    SELECT 1 FROM unnest($2::int[]) AS s (track)
    CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.tasks WHERE track = s.track AND state = 'running' AND worker = w.worker
          AND (id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY lease_expires_at LIMIT 1
    ) AS l
);

-- name: purge_row
-- What is known of unreadable tasks; `lock` has locked them. Takes ids. Returns id, place, state, track, share,
-- partition, day, lease_expires_at. Seeks by id, in each day of finished tasks.
(
    SELECT
        t.id, 'tasks' AS place, t.state, t.track, t.share, t.partition, 0 AS day,
        coalesce((SELECT b.expires_at FROM {schema}.batches AS b WHERE b.batch = t.batch), t.lease_expires_at)
            AS lease_expires_at
    FROM {schema}.tasks AS t WHERE t.id = ANY ($1::uuid[])
)
UNION ALL
(SELECT t.id, 'dead', t.state, t.track, '', NULL, t.day, NULL FROM {schema}.dead AS t WHERE t.id = ANY ($1::uuid[]))
UNION ALL
(SELECT t.id, 'finished', t.state, t.track, '', NULL, t.day, NULL FROM {schema}.finished AS t WHERE t.id = ANY ($1::uuid[]));

-- name: history
-- The history of a task that exists. Takes its id. Returns n, entry (JSON), oldest first.
SELECT n, entry FROM {schema}.history WHERE task = $1::uuid AND (
    EXISTS (SELECT 1 FROM {schema}.tasks WHERE id = $1::uuid)
    OR EXISTS (SELECT 1 FROM {schema}.dead WHERE id = $1::uuid)
    OR EXISTS (SELECT 1 FROM {schema}.finished WHERE id = $1::uuid)
)
ORDER BY n;

-- name: all_history
-- All history entries, in order. Takes the task and number to start after, limit. Returns task, n, entry (JSON). Reads
-- a range of the primary key.
SELECT task, n, entry FROM {schema}.history WHERE (task, n) > ($1::uuid, $2::int) ORDER BY task, n LIMIT $3::int;

-- name: add_history
-- Add entries to histories. Takes tasks, entries; later entries get higher numbers. The tasks are locked.
INSERT INTO {schema}.history (task, n, entry)
SELECT new.task, coalesce((SELECT max(h.n) FROM {schema}.history AS h WHERE h.task = new.task), 0) + new.k, new.entry
FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS new (task, entry, k);

-- name: trim_history
-- Keep the newest entries of some histories. Takes tasks, how many to keep.
DELETE FROM {schema}.history AS h USING (
    SELECT
        wanted.task,
        (SELECT n FROM {schema}.history WHERE task = wanted.task ORDER BY n DESC LIMIT 1 OFFSET $2::int) AS n
    FROM unnest($1::uuid[]) AS wanted (task)
) AS old
WHERE h.task = old.task AND h.n <= old.n;

-- name: delete_history
-- Delete the histories of tasks. Takes ids.
DELETE FROM {schema}.history WHERE task = ANY ($1::uuid[]);

-- name: keys
-- Idempotency keys, locked. Takes queues, keys, in order. Returns queue, key, task, fingerprint, held_until.
SELECT * FROM {schema}.lock_keys_{version}($1::text[], $2::text[]);

-- name: save_keys
-- Take idempotency keys. Takes queues, keys, tasks, fingerprints, held_until. They are locked.
INSERT INTO {schema}.keys (queue, key, task, fingerprint, held_until)
SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bigint[])
ON CONFLICT (queue, key) DO UPDATE SET
    task = excluded.task, fingerprint = excluded.fingerprint, held_until = excluded.held_until;

-- name: delete_keys
-- Free idempotency keys. Takes queues, keys.
DELETE FROM {schema}.keys AS k USING unnest($1::text[], $2::text[]) AS free (queue, key)
WHERE k.queue = free.queue AND k.key = free.key;

-- name: ended_keys
-- Idempotency keys whose window is over. Takes now; held_until, queue and key to start after; limit. Returns
-- held_until, queue, key, and whether its task is not unfinished. Reads a range of `keys_held`; locked keys are left
-- out.
SELECT k.held_until, k.queue, k.key, NOT EXISTS (SELECT 1 FROM {schema}.tasks AS t WHERE t.id = k.task) AS free
FROM {schema}.keys AS k
WHERE k.held_until <= $1::bigint AND (k.held_until, k.queue, k.key) > ($2::bigint, $3::text, $4::text)
ORDER BY k.held_until, k.queue, k.key LIMIT $5::int FOR UPDATE OF k SKIP LOCKED;

-- name: purge_keys
-- Free the idempotency keys of purged tasks. Takes queues, keys, tasks; a key that another task holds by now stays.
DELETE FROM {schema}.keys AS k USING unnest($1::text[], $2::text[], $3::uuid[]) AS gone (queue, key, task)
WHERE k.queue = gone.queue AND k.key = gone.key AND k.task = gone.task;

-- name: purge_keys_of
-- Free the idempotency keys of an unreadable task, whose own key can't be read either. Takes its id. Reads all keys;
-- only when such a task is purged.
DELETE FROM {schema}.keys WHERE task = $1::uuid;
