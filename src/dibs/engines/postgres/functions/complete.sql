-- name: complete
-- Move completed runs to the finished tasks. Takes now (NULL: the clock), the generation for which the rest was computed,
-- ids in order, lease numbers, results, and the tracks whose events are wanted (NULL: none, 0: all). Returns the status
-- ('stale': compute again), the ids of those that moved (NULL: all), and their tracks: the fence is in the statement, and
-- tasks whose end concerns others take the slow path. Deletes from `running` first: whoever has a task's row there decides
-- about it. Driven by primary keys; leases are compared by a hashed lookup, which IS TRUE keeps from becoming a join. (With a
-- join the planner chose other indexes, and looking up positions in an array made the time quadratic in the batch. So would
-- nested loops over what was found.)
CREATE OR REPLACE FUNCTION {schema}.complete_{version}(
    at bigint, generation_of bigint, ids uuid[], leases int[], results bytea[], watched int[],
    OUT status text, OUT done uuid[], OUT tracks int[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    today int := instant / 86400000000;
    own_tracks int[];
    workers text[];
    starts bigint[];
BEGIN
    IF (SELECT s.generation FROM {schema}.store AS s) <> generation_of THEN
        status := 'stale';
        RETURN;
    END IF;
    status := 'done';
    IF watched IS NOT NULL THEN
        PERFORM {schema}.begin_events_{version}();
    END IF;
    WITH ended AS (
        DELETE FROM {schema}.running AS r
        WHERE r.id = ANY (ids)
          AND ((r.id, r.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE
          AND NOT r.followed AND (r.gate = 0 OR r.partition IS NULL)
        RETURNING r.id, r.batch, r.track, r.lease, r.version, r.progress
    ), batches AS MATERIALIZED (
        SELECT l.batch, l.worker, l.sequence, l.started_at FROM {schema}.leases AS l
        WHERE l.batch = ANY (ARRAY(SELECT DISTINCT e.batch FROM ended AS e))
    ), freed AS (
        DELETE FROM {schema}.tasks AS t WHERE t.id = ANY (ARRAY(SELECT e.id FROM ended AS e))
        RETURNING t.id, t.rank, t.ready_at, t.created_at, t.args, t.facts, t.workflow
    ), kept AS (
        INSERT INTO {schema}.finished (
            id, day, track, state, rank, ready_at, lease, started_at, finished_at, created_at, worker, sequence,
            version, progress, result, args, facts, workflow
        )
        SELECT
            f.id, today, e.track, 'completed', f.rank, f.ready_at, e.lease, b.started_at, instant,
            f.created_at, b.worker, b.sequence, e.version, e.progress, r.result, f.args, f.facts, f.workflow
        FROM freed AS f JOIN ended AS e ON e.id = f.id JOIN unnest(ids, results) AS r (id, result) ON r.id = f.id
        LEFT JOIN batches AS b ON b.batch = e.batch
    ), emptied AS (
        DELETE FROM {schema}.leases AS l
        WHERE l.batch = ANY (ARRAY(SELECT b.batch FROM batches AS b))
          AND l.size = (SELECT count(*) FROM ended AS e WHERE e.batch = l.batch)
    ), counted AS (
        INSERT INTO {schema}.count_changes (what, track, day, n)
        SELECT w.what, c.track, w.counts_by_day * today, w.sign * c.n
        FROM
            (SELECT e.track, count(*) AS n FROM ended AS e GROUP BY e.track) AS c,
            (VALUES ('running', -1, 0), ('completed', 1, 1), ('completions', 1, 0)) AS w (what, sign, counts_by_day)
    )
    SELECT
        array_agg(e.id), array_agg(DISTINCT e.track),
        array_agg(e.track) FILTER (WHERE watched IS NOT NULL),
        array_agg(b.worker) FILTER (WHERE watched IS NOT NULL),
        array_agg(b.started_at) FILTER (WHERE watched IS NOT NULL)
    INTO done, tracks, own_tracks, workers, starts FROM ended AS e LEFT JOIN batches AS b ON b.batch = e.batch;
    IF own_tracks IS NOT NULL THEN
        INSERT INTO {schema}.events (at, type, track, task, worker, took)
        SELECT instant, 'task.completed', e.track, e.id, e.worker, instant - e.started_at
        FROM unnest(done, own_tracks, workers, starts) AS e (id, track, worker, started_at)
        WHERE watched = ARRAY[0] OR e.track = ANY (watched);
    END IF;
    IF cardinality(done) = cardinality(ids) THEN
        done := NULL;
    ELSIF done IS NULL THEN
        done := '{}';
    END IF;
END
$$;
