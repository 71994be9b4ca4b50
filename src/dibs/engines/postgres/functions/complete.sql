-- name: complete
-- Move completed runs to the finished tasks. Takes now (NULL: the clock), the generation for which the rest was computed,
-- ids in order, lease numbers, results, the tracks whose events are wanted (NULL: none, 0: all), and the tracks of
-- queues whose partitions have slots only, with their queues, the slots of a partition, and how many tasks of a group to
-- ungate at most. Returns the status ('stale': compute again), the ids of those that moved (NULL: all), and their tracks:
-- the fence is in the statement, and tasks whose end concerns others in another way take the slow path.
--
-- Driven by the primary key; leases are compared by a hashed lookup, which IS TRUE keeps from becoming a join. (With a
-- join the planner chose other indexes, and looking up positions in an array made the time quadratic in the batch.) A
-- task runs exactly while it has a lease_expires_at; in this form, the planner does not choose an index of running tasks.
-- Where slots become free, the queues are locked against claims, and the settings of all against changes: a claim that
-- gates what it finds full must not miss them. Tasks are ungated in partitions that were full: in others, the next was
-- not gated.
CREATE OR REPLACE FUNCTION {schema}.complete_{version}(
    at bigint, generation_of bigint, ids uuid[], leases int[], results bytea[], watched int[],
    slot_tracks int[], slot_queues text[], slot_mosts bigint[], ahead int,
    OUT status text, OUT done uuid[], OUT tracks int[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    today int := instant / 86400000000;
    own_tracks int[];
    workers text[];
    starts bigint[];
    locked text[];
    freed text[];
    mosts bigint[];
BEGIN
    IF cardinality(slot_tracks) > 0 THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
        locked := ARRAY(
            SELECT DISTINCT w.queue
            FROM {schema}.tasks AS t JOIN unnest(slot_tracks, slot_queues) AS w (track, queue) ON w.track = t.track
            WHERE t.id = ANY (ids) AND t.gate > 0 AND t.partition IS NOT NULL ORDER BY w.queue
        );
        PERFORM {schema}.lock_queues_{version}(locked);
    END IF;
    IF (SELECT s.generation FROM {schema}.store AS s) <> generation_of THEN
        status := 'stale';
        RETURN;
    END IF;
    status := 'done';
    IF watched IS NOT NULL THEN
        PERFORM {schema}.begin_events_{version}();
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.tasks AS t
        WHERE t.id = ANY (ids)
          AND t.lease_expires_at IS NOT NULL
          AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE
          AND NOT t.followed
          AND (
              t.gate = 0 OR t.partition IS NULL
              OR EXISTS (
                  SELECT 1 FROM unnest(slot_tracks, slot_queues) AS w (track, queue)
                  WHERE w.track = t.track AND w.queue = ANY (locked)
              )
          )
        RETURNING t.*
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
        array_agg(g.started_at) FILTER (WHERE watched IS NOT NULL),
        array_agg(g.partition) FILTER (WHERE g.partition IS NOT NULL AND cardinality(locked) > 0)
    INTO done, tracks, own_tracks, workers, starts, freed FROM gone AS g;
    IF freed IS NOT NULL THEN
        SELECT array_agg(f.partition), array_agg(w.most) INTO freed, mosts
        FROM (SELECT p.partition, count(*) AS n FROM unnest(freed) AS p (partition) GROUP BY p.partition) AS f
        JOIN (SELECT DISTINCT * FROM unnest(slot_queues, slot_mosts)) AS w (queue, most)
            ON w.queue = split_part(f.partition, ' ', 1)
        WHERE w.most <= f.n + (
            SELECT count(*) FROM {schema}.tasks AS r WHERE r.partition = f.partition AND r.state = 'running'
        );
        IF freed IS NOT NULL THEN
            PERFORM {schema}.ungate_heads_{version}(freed, mosts, ahead);
        END IF;
    END IF;
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
