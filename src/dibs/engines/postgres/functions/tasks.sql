-- name: find_tasks
-- Tasks by id, in any place. Takes ids. Returns the columns that every statement about tasks returns. Seeks by id, in
-- each day of finished tasks.
CREATE OR REPLACE FUNCTION {schema}.find_tasks_{version}(ids uuid[])
RETURNS TABLE (
    id uuid, track int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, version int, progress bytea,
    finished_at bigint, result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
        t.worker, t.sequence, t.version, t.progress, t.finished_at, t.result, t.args, t.facts, t.created_at
    FROM {schema}.unfinished AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at,
        t.result, t.args, t.facts, t.created_at
    FROM {schema}.dead AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at,
        t.result, t.args, t.facts, t.created_at
    FROM {schema}.finished AS t WHERE t.id = ANY (ids);
END
$$;

-- name: lock_pending
-- Lock rows in `pending`, in order of id. Takes ids, whether to skip those that are locked already. Returns the places of the
-- rows. Seeks the key of each, which is in the task's own row.
CREATE OR REPLACE FUNCTION {schema}.lock_pending_{version}(ids uuid[], skips_locked boolean) RETURNS tid[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF skips_locked THEN
        RETURN ARRAY(
            SELECT p.ctid FROM {schema}.tasks AS t
            JOIN {schema}.pending AS p ON p.track = t.track AND p.gated = ANY ('{f,t}'::boolean[]) AND p.share = t.share
                AND p.rank = t.rank AND p.id = t.id
            WHERE t.id = ANY (ids) AND t.state = 'pending' ORDER BY t.id FOR UPDATE OF p SKIP LOCKED
        );
    END IF;
    RETURN ARRAY(
        SELECT p.ctid FROM {schema}.tasks AS t
        JOIN {schema}.pending AS p ON p.track = t.track AND p.gated = ANY ('{f,t}'::boolean[]) AND p.share = t.share
            AND p.rank = t.rank AND p.id = t.id
        WHERE t.id = ANY (ids) AND t.state = 'pending' ORDER BY t.id FOR UPDATE OF p
    );
END
$$;

-- name: set_gates
-- Gate or ungate pending tasks. Takes ids, whether to gate (then without those that others have locked), whether their moves
-- still concern others. A function, so that it seeks whatever the planner believes of the tables.
CREATE OR REPLACE FUNCTION {schema}.set_gates_{version}(ids uuid[], is_gated boolean, guarded boolean) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    places tid[] := {schema}.lock_pending_{version}(ids, is_gated);
BEGIN
    UPDATE {schema}.pending SET gated = is_gated WHERE ctid = ANY (places) AND gated <> is_gated;
    IF NOT guarded THEN
        UPDATE {schema}.tasks SET gate = 0 WHERE id = ANY (ids);
    END IF;
END
$$;

-- name: lock_unfinished
-- Lock unfinished tasks, in order of id: the row in `pending` or `running`, and then the task's own. Takes ids. Returns the
-- columns of `find`, of those that are in the state in which their row was locked: one that a claim took meanwhile is left
-- out. Each place is read with a new snapshot.
CREATE OR REPLACE FUNCTION {schema}.lock_unfinished_{version}(ids uuid[])
RETURNS TABLE (
    id uuid, track int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, version int, progress bytea,
    finished_at bigint, result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    places tid[] := {schema}.lock_pending_{version}(ids, false);
    held uuid[];
BEGIN
    held := ARRAY(SELECT r.id FROM {schema}.running AS r WHERE r.id = ANY (ids) ORDER BY r.id FOR UPDATE);
    PERFORM FROM {schema}.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    held := held || ARRAY(SELECT p.id FROM {schema}.pending AS p WHERE p.ctid = ANY (places));
    RETURN QUERY SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
        t.worker, t.sequence, t.version, t.progress, t.finished_at, t.result, t.args, t.facts, t.created_at
    FROM {schema}.unfinished AS t
    WHERE t.id = ANY (ids) AND (t.state NOT IN ('pending', 'running') OR (t.id IN (SELECT unnest(held))) IS TRUE)
    ORDER BY t.id;
END
$$;

-- name: take_out
-- Before unfinished tasks are written or deleted: take their rows out of `pending` and `running`, except of those that go
-- on running. Takes ids; lease numbers, states and versions as they were loaded; the new states (NULL: none). Returns the ids
-- of those that are as they were loaded: the fence. What a task was loaded as tells which row must be there.
CREATE OR REPLACE FUNCTION {schema}.take_out_{version}(
    ids uuid[], leases int[], states text[], versions int[], new_states text[]
) RETURNS SETOF uuid
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    places tid[] := {schema}.lock_pending_{version}(ids, false);
    waited uuid[];
    ran uuid[];
BEGIN
    WITH gone AS (DELETE FROM {schema}.pending AS p WHERE p.ctid = ANY (places) RETURNING p.id)
    SELECT array_agg(g.id) INTO waited FROM gone AS g;
    ran := ARRAY(
        SELECT r.id FROM {schema}.running AS r
        WHERE r.id = ANY (ids) AND (
            (r.id, r.lease, r.version) IN (
                SELECT o.id, o.lease, o.version FROM unnest(ids, leases, states, versions) AS o (id, lease, state, version)
                WHERE o.state = 'running'
            )
        ) IS TRUE
        ORDER BY r.id FOR UPDATE
    );
    DELETE FROM {schema}.running AS r
    WHERE r.id = ANY (ran) AND (
        r.id IN (SELECT n.id FROM unnest(ids, new_states) AS n (id, state) WHERE n.state = 'running')
    ) IS NOT TRUE;
    RETURN QUERY
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.id = ANY (ids) AND (
        (t.id IN (SELECT unnest(ran))) IS TRUE
        OR (
            (t.id, t.lease, t.state, t.version) IN (SELECT o.id, o.lease, o.state, o.version
            FROM unnest(ids, leases, states, versions) AS o (id, lease, state, version))
        ) IS TRUE AND (t.state <> 'pending' OR (t.id IN (SELECT unnest(waited))) IS TRUE)
    )
    ORDER BY t.id FOR UPDATE;
END
$$;

-- name: lock_tasks
-- Lock tasks in any place, in order of id. Takes ids. Returns the columns of `find`. A function, because each place
-- needs a new snapshot: a task that left one while we waited for it is in the next.
CREATE OR REPLACE FUNCTION {schema}.lock_tasks_{version}(ids uuid[])
RETURNS TABLE (
    id uuid, track int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, version int, progress bytea,
    finished_at bigint, result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    found int;
    total int := 0;
BEGIN
    RETURN QUERY SELECT * FROM {schema}.lock_unfinished_{version}(ids);
    GET DIAGNOSTICS found = ROW_COUNT;
    total := found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at,
        t.result, t.args, t.facts, t.created_at
    FROM {schema}.dead AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    total := total + found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT
        t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at,
        t.result, t.args, t.facts, t.created_at
    FROM {schema}.finished AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
END
$$;

-- name: lock_needed
-- Lock tasks that new ones wait for, so that none of them ends unnoticed. Takes ids, in order. Returns id, state. Each
-- place is read with a new snapshot: a task that left one while we waited for it is in the next. One that came back to
-- `pending` behind our back is looked for again: no claim may copy `followed` while it changes.
CREATE OR REPLACE FUNCTION {schema}.lock_needed_{version}(ids uuid[]) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    held tid[];
    found uuid[];
BEGIN
    FOR attempt IN 1 .. 10 LOOP  -- a damaged row may be nowhere
        held := {schema}.lock_pending_{version}(ids, false);
        found := ARRAY(SELECT r.id FROM {schema}.running AS r WHERE r.id = ANY (ids) ORDER BY r.id FOR NO KEY UPDATE);
        PERFORM FROM {schema}.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR NO KEY UPDATE;
        EXIT WHEN cardinality(held) + cardinality(found) = (
            SELECT count(*) FROM {schema}.tasks AS t WHERE t.id = ANY (ids) AND t.state = 'pending'
        );
    END LOOP;
    RETURN QUERY SELECT t.id, t.state FROM {schema}.unfinished AS t WHERE t.id = ANY (ids) ORDER BY t.id;
    RETURN QUERY SELECT t.id, t.state FROM {schema}.dead AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY SELECT t.id, t.state FROM {schema}.finished AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR SHARE;
END
$$;

-- name: lock_keys
-- Lock idempotency keys until the transaction ends. Takes queues, keys, in order. Returns those that tasks hold. A key
-- that does not exist is inserted first, without a task, so that two transactions that want it meet here.
CREATE OR REPLACE FUNCTION {schema}.lock_keys_{version}(queues text[], names text[])
RETURNS TABLE (queue text, key text, task uuid, fingerprint text, held_until bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fresh text[];
BEGIN
    WITH put AS (
        INSERT INTO {schema}.keys AS k (queue, key, task, fingerprint, held_until)
        SELECT w.queue, w.key, '00000000-0000-0000-0000-000000000000', '', 0
        FROM unnest(queues, names) WITH ORDINALITY AS w (queue, key, k) ORDER BY w.k
        ON CONFLICT DO NOTHING
        RETURNING k.queue || ' ' || k.key AS name
    )
    SELECT array_agg(p.name) INTO fresh FROM put AS p;
    IF cardinality(fresh) = cardinality(queues) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT k.queue, k.key, k.task, k.fingerprint, k.held_until
    FROM {schema}.keys AS k, unnest(queues, names) AS w (queue, key)
    WHERE k.queue = w.queue AND k.key = w.key AND k.queue || ' ' || k.key <> ALL (coalesce(fresh, '{}'))
    ORDER BY k.queue, k.key FOR UPDATE OF k;
END
$$;

-- name: promote
-- Make due tasks pending. Takes now, limit, the instant to read from, the tracks whose events are wanted (NULL: none,
-- 0: all). Only tasks whose moves concern no others. Returns how many. Reads a range of `due`; locked tasks are left to
-- the transactions that move them.
CREATE OR REPLACE FUNCTION {schema}.promote_{version}(instant bigint, most int, looks_from bigint, watched int[])
RETURNS int
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids uuid[];
BEGIN
    WITH found AS MATERIALIZED (
        SELECT t.id, t.track, t.state FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.due_at >= looks_from AND t.due_at <= instant AND t.gate = 0
          AND t.state IN ('scheduled', 'retrying')
        ORDER BY t.due_at, t.id LIMIT most FOR UPDATE SKIP LOCKED
    ), counted AS (
        INSERT INTO {schema}.count_changes (what, track, n)
        SELECT w.what, f.track, w.sign * count(*)
        FROM found AS f, LATERAL (VALUES (f.state, -1), ('pending', 1)) AS w (what, sign)
        GROUP BY w.what, w.sign, f.track
    )
    SELECT array_agg(f.id) INTO ids FROM found AS f;
    WITH ready AS (
        UPDATE {schema}.tasks AS t SET state = 'pending', due_at = NULL WHERE t.id = ANY (ids) RETURNING t.*
    )
    INSERT INTO {schema}.pending (id, track, gated, share, rank, ready_at, expires_at, partition)
    SELECT r.id, r.track, false, r.share, r.rank, r.ready_at, r.expires_at, r.partition FROM ready AS r;
    IF watched IS NOT NULL AND ids IS NOT NULL THEN
        PERFORM {schema}.task_events_{version}('task.promoted', instant, ids, watched);
    END IF;
    RETURN coalesce(cardinality(ids), 0);
END
$$;

-- name: lock_expired
-- Lock running tasks whose lease has ended by an instant, longest ago first, without those that are locked already. Takes the
-- instant, limit, tracks, the expiry to start at, ids to skip. Returns ids. Reads a range of `lease_ends` and `running_ends`;
-- first deletes from it batches of which nothing runs. Also locks the leases, so that no heartbeat extends them meanwhile.
CREATE OR REPLACE FUNCTION {schema}.lock_expired_{version}(
    until bigint, most int, tracks int[], low bigint, passed uuid[]
) RETURNS uuid[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found uuid[];
    ended bigint[];
BEGIN
    DELETE FROM {schema}.leases WHERE batch = ANY (ARRAY(
        SELECT l.batch FROM {schema}.leases AS l
        WHERE l.expires_at <= until AND l.expires_at >= low AND NOT EXISTS (
            SELECT 1 FROM {schema}.running AS r WHERE r.id = ANY (l.ids) AND r.batch = l.batch
        )
        ORDER BY l.expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    ));
    SELECT array_agg(e.id), array_agg(DISTINCT e.batch) INTO found, ended FROM (
        SELECT * FROM (
            (
                SELECT r.id, l.batch, l.expires_at AS ends_at
                FROM {schema}.leases AS l JOIN {schema}.running AS r ON r.id = ANY (l.ids) AND r.batch = l.batch
                WHERE l.expires_at <= until AND l.expires_at >= low AND r.expires_at IS NULL
                  AND r.track = ANY (tracks) AND (r.id IN (SELECT unnest(passed))) IS NOT TRUE
                ORDER BY l.expires_at, r.id LIMIT most
            )
            UNION ALL
            (
                SELECT r.id, NULL, r.expires_at FROM {schema}.running AS r
                WHERE r.expires_at <= until AND r.expires_at >= low
                  AND r.track = ANY (tracks) AND (r.id IN (SELECT unnest(passed))) IS NOT TRUE
                ORDER BY r.expires_at, r.id LIMIT most
            )
        ) AS both_kinds
        ORDER BY ends_at, id LIMIT most
    ) AS e;
    ended := ARRAY(
        SELECT l.batch FROM {schema}.leases AS l
        WHERE l.batch = ANY (ended) AND l.expires_at <= until ORDER BY l.batch FOR UPDATE SKIP LOCKED
    );
    found := ARRAY(
        SELECT r.id FROM {schema}.running AS r
        WHERE r.id = ANY (found)
          AND CASE WHEN r.expires_at IS NULL THEN r.batch = ANY (ended) ELSE r.expires_at <= until END
        ORDER BY r.id FOR UPDATE SKIP LOCKED
    );
    RETURN ARRAY(SELECT t.id FROM {schema}.tasks AS t WHERE t.id = ANY (found) ORDER BY t.id FOR UPDATE SKIP LOCKED);
END
$$;
