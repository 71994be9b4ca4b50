-- Views for people, with instants as times and JSON as jsonb. No statement of Dibs uses them: they can be dropped, and
-- granted to whoever may look.

-- An instant (integer microseconds) as a time, exact to the microsecond. Inlined.
CREATE FUNCTION dibs.to_time(instant bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT timestamptz 'epoch' + instant * interval '1 microsecond'
$$;

-- What is stored as JSON text, as jsonb, whatever it is: people may have put in what jsonb refuses. NUL characters
-- become replacement characters; what is no JSON for this server becomes a string of itself.
CREATE FUNCTION dibs.to_json(stored bytea) RETURNS jsonb
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

-- Every task, wherever it is. The parts have no conditions of their own and equal types, so that the planner takes the
-- view apart: a condition on `id` seeks in each part, one on `state` leaves out the parts that can't have it, one on
-- `queue` and running or blocked seeks by stream, and ORDER BY id DESC LIMIT n merges the newest of each part. OFFSET 0
-- keeps the facts from being read once for each column.
CREATE VIEW dibs.all_tasks AS
SELECT
    t.id, s.queue, s.name, t.state, f.facts ->> 'reason' AS reason, nullif(f.facts ->> 'note', '') AS note,
    coalesce((f.facts -> 'spec' ->> 'priority')::int, 50) AS priority,
    dibs.to_time(t.created_at) AS created_at,
    dibs.to_time(coalesce(t.due_at, (f.facts ->> 'not_before')::bigint)) AS due_at,
    dibs.to_time(t.ready_at) AS ready_at,
    dibs.to_time(t.started_at) AS started_at,
    dibs.to_time(t.finished_at) AS finished_at,
    dibs.to_time(t.lease_expires_at) AS lease_expires_at,
    dibs.to_time((f.facts -> 'spec' ->> 'deadline')::bigint) AS deadline,
    dibs.to_time((f.facts -> 'spec' ->> 'expires_at')::bigint) AS expires_at,
    t.worker, t.lease,
    coalesce((f.facts ->> 'attempts')::int, 0) AS attempts,
    coalesce((f.facts ->> 'losses')::int, 0) AS losses,
    f.facts ->> 'cancel_reason' AS cancel_asked,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'type' END AS error_type,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'message' END AS error_message,
    CASE WHEN t.state <> 'completed' THEN f.facts -> 'failure' ->> 'traceback' END AS error_traceback,
    (dibs.to_json(t.progress) ->> 0)::float8 AS progress,
    nullif(dibs.to_json(t.progress) ->> 1, '') AS progress_message,
    f.facts -> 'spec' ->> 'partition' AS partition,
    nullif(f.facts -> 'spec' ->> 'tenant', '') AS tenant,
    t.workflow,
    f.facts -> 'spec' ->> 'key' AS key,
    s.requires,
    f.facts -> 'spec' ->> 'parent' AS parent,
    coalesce(f.facts -> 'spec' -> 'metadata', '{}') AS metadata,
    dibs.to_json(t.args) AS args,
    dibs.to_json(t.result) AS result
FROM (
    SELECT
        id, stream, state, created_at, due_at, ready_at, started_at, NULL::bigint AS finished_at, lease_expires_at,
        worker, lease, progress, workflow, args, NULL::bytea AS result, facts
    FROM dibs.tasks
    UNION ALL
    SELECT
        id, stream, 'dead'::text, created_at, NULL::bigint, ready_at, started_at, finished_at, NULL::bigint,
        worker, lease, progress, workflow, args, result, facts
    FROM dibs.dead
    UNION ALL
    SELECT
        id, stream, state, created_at, NULL::bigint, ready_at, started_at, finished_at, NULL::bigint,
        worker, lease, progress, workflow, args, result, facts
    FROM dibs.finished
) AS t
JOIN dibs.streams AS s ON s.stream = t.stream
CROSS JOIN LATERAL (SELECT dibs.to_json(t.facts) AS facts OFFSET 0) AS f;

-- Dead tasks, and why they are.
CREATE VIEW dibs.dead_letters AS
SELECT
    t.id, s.queue, s.name, t.reason, nullif(f.facts ->> 'note', '') AS note,
    f.facts -> 'failure' ->> 'type' AS error_type,
    f.facts -> 'failure' ->> 'message' AS error_message,
    f.facts -> 'failure' ->> 'traceback' AS error_traceback,
    coalesce((f.facts ->> 'attempts')::int, 0) AS attempts,
    coalesce((f.facts ->> 'losses')::int, 0) AS losses,
    coalesce((f.facts -> 'spec' ->> 'priority')::int, 50) AS priority,
    dibs.to_time(t.created_at) AS created_at,
    dibs.to_time(t.started_at) AS started_at,
    dibs.to_time(t.finished_at) AS died_at,
    t.worker,
    nullif(f.facts -> 'spec' ->> 'tenant', '') AS tenant,
    t.workflow,
    f.facts -> 'spec' ->> 'key' AS key,
    coalesce(f.facts -> 'spec' -> 'metadata', '{}') AS metadata,
    dibs.to_json(t.args) AS args
FROM dibs.dead AS t
JOIN dibs.streams AS s ON s.stream = t.stream
CROSS JOIN LATERAL (SELECT dibs.to_json(t.facts) AS facts OFFSET 0) AS f;

-- How many tasks each queue has in each state, from the counts that are kept with every move.
CREATE VIEW dibs.queue_counts AS
SELECT s.queue, c.what AS state, sum(c.n)::bigint AS tasks
FROM (
    SELECT what, stream, n FROM dibs.tallies WHERE stream > 0
    UNION ALL
    SELECT what, stream, n FROM dibs.deltas WHERE stream > 0
) AS c
JOIN dibs.streams AS s ON s.stream = c.stream
WHERE c.what IN ('blocked', 'scheduled', 'pending', 'running', 'retrying', 'completed', 'cancelled', 'dead')
GROUP BY s.queue, c.what HAVING sum(c.n) <> 0;
