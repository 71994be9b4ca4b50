-- name: complete
-- Move completed runs to the finished tasks. Takes now (NULL: the clock), the generation for which the rest was computed,
-- ids in order, lease numbers, results, and the tracks whose events are wanted (NULL: none, 0: all). Returns the status
-- ('stale': compute again), the ids of those that moved (NULL: all), and their tracks: the fence is in the statement, and
-- tasks whose end concerns others take the slow path. Deletes from `running` first: whoever has a task's row there decides
-- about it. Whether others follow a task is only told by its own row, which is compared once it is locked; if they do, the
-- row in `running` is put back. Driven by primary keys; leases are compared by a hashed lookup, which IS TRUE keeps from
-- becoming a join. (With a join the planner chose other indexes, and looking up positions in an array made the time
-- quadratic in the batch.) So are joins of what was found: no nested loops.
CREATE OR REPLACE FUNCTION {schema}.complete_{version}(
    at bigint, generation_of bigint, ids uuid[], leases int[], results bytea[], watched int[],
    OUT status text, OUT done uuid[], OUT tracks int[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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
          AND (r.gate = 0 OR r.partition IS NULL)
        RETURNING r.*
    ), batches AS MATERIALIZED (
        SELECT l.batch, l.worker, l.sequence, l.started_at FROM {schema}.leases AS l
        WHERE l.batch = ANY (ARRAY(SELECT DISTINCT e.batch FROM ended AS e))
    ), freed AS (
        DELETE FROM {schema}.tasks AS t
        WHERE t.id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND NOT t.followed
        RETURNING t.id, t.rank, t.ready_at, t.created_at, t.args, t.facts, t.workflow
    ), gone AS MATERIALIZED (
        SELECT f.*, e.batch, e.track, e.lease, e.version, e.progress, b.worker, b.sequence, b.started_at
        FROM freed AS f JOIN ended AS e ON e.id = f.id LEFT JOIN batches AS b ON b.batch = e.batch
    ), back AS (
        INSERT INTO {schema}.running
        SELECT e.* FROM ended AS e WHERE (e.id IN (SELECT g.id FROM gone AS g)) IS NOT TRUE
    ), emptied AS (
        DELETE FROM {schema}.leases AS l
        WHERE l.batch = ANY (ARRAY(SELECT b.batch FROM batches AS b))
          AND l.size = (SELECT count(*) FROM gone AS g WHERE g.batch = l.batch)
    ), kept AS (
        INSERT INTO {schema}.finished (
            id, day, track, state, rank, ready_at, lease, started_at, finished_at, created_at, worker, sequence,
            version, progress, result, args, facts, workflow
        )
        SELECT
            g.id, today, g.track, 'completed', g.rank, g.ready_at, g.lease, g.started_at, instant,
            g.created_at, g.worker, g.sequence, g.version, g.progress, r.result, g.args, g.facts, g.workflow
        FROM gone AS g JOIN unnest(ids, results) AS r (id, result) ON r.id = g.id
    ), counted AS (
        INSERT INTO {schema}.count_changes (what, track, day, n)
        SELECT w.what, c.track, w.counts_by_day * today, w.sign * c.n
        FROM
            (SELECT g.track, count(*) AS n FROM gone AS g GROUP BY g.track) AS c,
            (VALUES ('running', -1, 0), ('completed', 1, 1), ('completions', 1, 0)) AS w (what, sign, counts_by_day)
    )
    SELECT
        array_agg(g.id), array_agg(DISTINCT g.track),
        array_agg(g.track) FILTER (WHERE watched IS NOT NULL),
        array_agg(g.worker) FILTER (WHERE watched IS NOT NULL),
        array_agg(g.started_at) FILTER (WHERE watched IS NOT NULL)
    INTO done, tracks, own_tracks, workers, starts FROM gone AS g;
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
