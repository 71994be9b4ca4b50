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
    SELECT {row}
    FROM {schema}.tasks AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT {ended_row} FROM {schema}.dead AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT {ended_row} FROM {schema}.finished AS t WHERE t.id = ANY (ids);
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
    RETURN QUERY SELECT {row}
    FROM {schema}.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    total := found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT {ended_row} FROM {schema}.dead AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    total := total + found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT {ended_row} FROM {schema}.finished AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
END
$$;

-- name: expired_tasks
-- Running tasks whose lease has ended by an instant, longest ago first, locked, without those that are locked already.
-- Takes the instant, limit, all tracks, the expiry to start at, ids to skip. Returns the columns of `find`. Reads a
-- range of `leases` for each track, and one of `batch_ends`; batches of which nothing is left are deleted. The batches are
-- locked until the transaction ends, so that none of their leases is extended: those that are being extended are left.
-- A row is checked again once it is locked, in a CASE, which can use no index.
CREATE OR REPLACE FUNCTION {schema}.expired_tasks_{version}(
    ended_by bigint, most int, tracks int[], low bigint, passed uuid[]
)
RETURNS TABLE (
    id uuid, track int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, version int, progress bytea,
    finished_at bigint, result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    batches bigint[] := ARRAY(
        SELECT b.batch FROM {schema}.batches AS b
        WHERE b.expires_at <= ended_by AND b.expires_at >= low
        ORDER BY b.expires_at, b.batch LIMIT most FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF cardinality(batches) > 0 THEN
        DELETE FROM {schema}.batches AS b WHERE b.batch = ANY (batches)
            AND (SELECT t.batch FROM {schema}.tasks AS t WHERE t.batch = b.batch LIMIT 1) IS NULL;
    END IF;
    RETURN QUERY
    SELECT {row}
    FROM {schema}.tasks AS t
    WHERE t.id = ANY (ARRAY(
        SELECT l.id FROM (
            SELECT o.id, o.lease_expires_at FROM unnest(tracks) AS s (track)
            CROSS JOIN LATERAL (
                SELECT r.id, r.lease_expires_at FROM {schema}.tasks AS r
                WHERE r.track = s.track AND r.state = 'running' AND r.lease_expires_at <= ended_by
                  AND r.lease_expires_at >= low AND r.id <> ALL (passed)
                ORDER BY r.lease_expires_at, r.id LIMIT most
            ) AS o
            UNION ALL
            SELECT m.id, b.expires_at FROM unnest(batches) AS w (batch)
            CROSS JOIN LATERAL (SELECT e.expires_at FROM {schema}.batches AS e WHERE e.batch = w.batch) AS b
            CROSS JOIN LATERAL (
                SELECT r.id FROM {schema}.tasks AS r WHERE r.batch = w.batch AND r.id <> ALL (passed) LIMIT most
            ) AS m
        ) AS l
        ORDER BY l.lease_expires_at, l.id LIMIT most
    )) AND CASE WHEN t.state = 'running' THEN t.batch = ANY (batches) OR t.lease_expires_at <= ended_by END
    ORDER BY t.lease_expires_at, t.id FOR UPDATE SKIP LOCKED;
END
$$;

-- name: lock_needed
-- Lock tasks that new ones wait for, so that none of them ends unnoticed. Takes ids, in order. Returns id, state. Each
-- place is read with a new snapshot: a task that left one while we waited for it is in the next.
CREATE OR REPLACE FUNCTION {schema}.lock_needed_{version}(ids uuid[]) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.id, t.state FROM {schema}.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR NO KEY UPDATE;
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

-- name: insert_tasks
-- Store unfinished tasks that are in no place. Takes the columns of `task_columns`, and how many of its group (partition,
-- track and share) may wait ungated before a new task is gated (NULL: it is as it says; 1: starts are counted by the
-- second). Returns how many were in no place.
--
-- A group that has no gated task has not been full of late: there, 32 for each new task may wait ungated, and 1,000 at
-- most, which is what one claim gates if the partition is full after all. One seek in `followed` each tells whether others
-- wait for it; for each group, a seek in `gated_groups` whether it has gated ones, and a range of `partitions` how many
-- are better than the best new one.
CREATE OR REPLACE FUNCTION {schema}.insert_tasks_{version}(
    ids uuid[], tracks int[], states text[], ranks bigint[], all_ready_at bigint[], all_due_at bigint[],
    all_rerank_at bigint[], leases int[], lease_fors bigint[], all_lease_expires_at bigint[], all_started_at bigint[],
    workers text[], sequences bigint[], cancels boolean[], shares text[], gates smallint[], partitions text[],
    all_expires_at bigint[], workflows uuid[], versions int[], all_progress bytea[], all_args bytea[],
    all_facts bytea[], all_created_at bigint[], aheads int[]
)
RETURNS int
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    stored int;
BEGIN
    INSERT INTO {schema}.tasks AS t (
        id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
        sequence, cancel, share, gate, partition, expires_at, workflow, version, progress, args, facts, created_at,
        followed
    )
    SELECT
        new.id, new.track, new.state, new.rank, new.ready_at, new.due_at, new.rerank_at, new.lease, new.lease_for,
        new.lease_expires_at, new.started_at, new.worker, new.sequence, new.cancel, new.share,
        CASE
            WHEN new.ahead IS NULL OR new.gate < 2 THEN new.gate
            WHEN new.place + max(new.better) OVER new_of_group
                > CASE WHEN bool_or(new.has_gated) OVER new_of_group THEN new.ahead ELSE new.most END THEN 2
            ELSE 1
        END,
        new.partition, new.expires_at, new.workflow, new.version, new.progress, new.args, new.facts, new.created_at,
        coalesce((SELECT e.open FROM {schema}.edges AS e WHERE e.prerequisite = new.id AND e.open LIMIT 1), false)
    FROM (
        SELECT
            p.*,
            CASE WHEN p.gate = 2 AND p.place = 1 THEN (
                SELECT count(*) FROM (
                    SELECT 1 FROM {schema}.tasks AS b
                    WHERE b.partition = p.partition AND b.state = 'pending' AND b.track = p.track
                      AND b.share = p.share AND (b.rank, b.id) < (p.rank, p.id)
                    LIMIT p.most
                ) AS b
            ) END AS better,
            CASE WHEN p.gate = 2 AND p.place = 1 THEN (
                SELECT true FROM {schema}.tasks AS b
                WHERE b.partition = p.partition AND b.state = 'pending' AND b.gate > 1 AND b.track = p.track
                  AND b.share = p.share LIMIT 1
            ) END AS has_gated
        FROM (
            SELECT
                u.*,
                CASE WHEN u.ahead = 1 THEN 1 ELSE greatest(u.ahead, least(1000, 32 * count(*) OVER of_group)) END AS most,
                row_number() OVER (of_group ORDER BY u.rank, u.id) AS place
            FROM unnest(
                ids, tracks, states, ranks, all_ready_at, all_due_at, all_rerank_at, leases, lease_fors,
                all_lease_expires_at, all_started_at, workers, sequences, cancels, shares, gates, partitions,
                all_expires_at, workflows, versions, all_progress, all_args, all_facts, all_created_at, aheads
            ) AS u (
                id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at,
                worker, sequence, cancel, share, gate, partition, expires_at, workflow, version, progress, args,
                facts, created_at, ahead
            )
            WINDOW of_group AS (PARTITION BY u.partition, u.track, u.share, u.gate)
        ) AS p
    ) AS new
    WINDOW new_of_group AS (PARTITION BY new.partition, new.track, new.share, new.gate)
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    RETURN stored;
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
    UPDATE {schema}.tasks SET state = 'pending', due_at = NULL WHERE id = ANY (ids);
    IF watched IS NOT NULL AND ids IS NOT NULL THEN
        PERFORM {schema}.task_events_{version}('task.promoted', instant, ids, watched);
    END IF;
    RETURN coalesce(cardinality(ids), 0);
END
$$;
