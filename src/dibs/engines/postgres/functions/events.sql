-- name: begin_events
-- Before a transaction appends events: a lock until its end that says after which number they come. Takes nothing. The
-- lock has two keys: the store, and 31 bits of the last number given. Nobody waits for it: it is only shared.
CREATE OR REPLACE FUNCTION {schema}.begin_events_{version}() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(
        hashtext('{schema_text}.events') & 2147483647,
        ((s.last_value - (NOT s.is_called)::int) & 2147483647)::int
    )
    FROM {schema}.events_n_seq AS s;
END
$$;

-- name: add_events
-- Append events. Takes at, type, track, queue, task, worker, took, data: columns.
CREATE OR REPLACE FUNCTION {schema}.add_events_{version}(
    ats bigint[], types text[], tracks int[], queues text[], tasks uuid[], workers text[], all_took bigint[], all_data text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.begin_events_{version}();
    INSERT INTO {schema}.events (at, type, track, queue, task, worker, took, data)
    SELECT e.at, e.type, e.track, e.queue, e.task, e.worker, e.took, e.data
    FROM unnest(ats, types, tracks, queues, tasks, workers, all_took, all_data) WITH ORDINALITY
        AS e (at, type, track, queue, task, worker, took, data, k)
    ORDER BY e.k;
END
$$;

-- name: task_events
-- Append one event for each of some unfinished tasks. Takes the type, now, ids, the tracks whose events are
-- wanted (0: all). Seeks by primary key.
CREATE OR REPLACE FUNCTION {schema}.task_events_{version}(event text, instant bigint, ids uuid[], watched int[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM {schema}.begin_events_{version}();
    INSERT INTO {schema}.events (at, type, track, task, worker, data)
    SELECT
        instant, event, t.track, t.id, t.worker,
        CASE WHEN event = 'task.submitted' THEN
            json_strip_nulls(json_build_object('state', t.state, 'due_at', t.due_at))::text
        END
    FROM {schema}.unfinished AS t
    WHERE t.id = ANY (ids) AND (watched = ARRAY[0] OR t.track = ANY (watched));
END
$$;
