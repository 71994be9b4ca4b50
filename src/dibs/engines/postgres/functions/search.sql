-- name: newest
-- Of the newest tasks of some ranges of ids, those that are wanted. Takes for each range the lowest id and the one to
-- start below; how many to visit in each place of each range; whether unfinished, dead, finished or only cancelled ones
-- are wanted; states that are not wanted, tracks, worker, creation from and until, three texts that are in the facts
-- (from the tracks on, NULL: anything). Returns the number of the range, id, NULL, in no order; and for each place of
-- each range its number, the id at which it was left (NULL at its end), and how many were visited. Reads a range of the
-- primary key of each place, or of `finished_cancelled`.
CREATE OR REPLACE FUNCTION {schema}.newest_{version}(
    lows uuid[], highs uuid[], most int, with_tasks boolean, with_dead boolean, with_finished boolean,
    with_cancelled boolean, unwanted text[], tracks int[], worker_id text, created_from bigint, created_until bigint,
    needle_1 bytea, needle_2 bytea, needle_3 bytea
)
RETURNS TABLE (n int, id uuid, visited int)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    FOR i IN 1 .. cardinality(lows) LOOP
        IF with_tasks THEN
            RETURN QUERY WITH looked AS MATERIALIZED (
                SELECT
                    t.id,
                    t.state <> ALL (unwanted) AND (tracks IS NULL OR t.track = ANY (tracks))
                    AND (worker_id IS NULL OR t.worker = worker_id)
                    AND (created_from IS NULL OR t.created_at >= created_from)
                    AND (created_until IS NULL OR t.created_at < created_until)
                    AND (needle_1 IS NULL OR position(needle_1 IN t.facts) > 0)
                    AND (needle_2 IS NULL OR position(needle_2 IN t.facts) > 0)
                    AND (needle_3 IS NULL OR position(needle_3 IN t.facts) > 0) AS is_wanted
                FROM {schema}.unfinished AS t
                WHERE t.id >= lows[i] AND t.id < highs[i] ORDER BY t.id DESC LIMIT most
            )
            SELECT i, l.id, NULL::int FROM looked AS l WHERE l.is_wanted
            UNION ALL
            SELECT i, (SELECT l.id FROM looked AS l OFFSET most - 1 LIMIT 1), (SELECT count(*)::int FROM looked);
        END IF;
        IF with_dead THEN
            RETURN QUERY WITH looked AS MATERIALIZED (
                SELECT
                    t.id,
                    t.state <> ALL (unwanted) AND (tracks IS NULL OR t.track = ANY (tracks))
                    AND (worker_id IS NULL OR t.worker = worker_id)
                    AND (created_from IS NULL OR t.created_at >= created_from)
                    AND (created_until IS NULL OR t.created_at < created_until)
                    AND (needle_1 IS NULL OR position(needle_1 IN t.facts) > 0)
                    AND (needle_2 IS NULL OR position(needle_2 IN t.facts) > 0)
                    AND (needle_3 IS NULL OR position(needle_3 IN t.facts) > 0) AS is_wanted
                FROM {schema}.dead AS t
                WHERE t.id >= lows[i] AND t.id < highs[i] ORDER BY t.id DESC LIMIT most
            )
            SELECT i, l.id, NULL::int FROM looked AS l WHERE l.is_wanted
            UNION ALL
            SELECT i, (SELECT l.id FROM looked AS l OFFSET most - 1 LIMIT 1), (SELECT count(*)::int FROM looked);
        END IF;
        IF with_finished THEN
            RETURN QUERY WITH looked AS MATERIALIZED (
                SELECT
                    t.id,
                    t.state <> ALL (unwanted) AND (tracks IS NULL OR t.track = ANY (tracks))
                    AND (worker_id IS NULL OR t.worker = worker_id)
                    AND (created_from IS NULL OR t.created_at >= created_from)
                    AND (created_until IS NULL OR t.created_at < created_until)
                    AND (needle_1 IS NULL OR position(needle_1 IN t.facts) > 0)
                    AND (needle_2 IS NULL OR position(needle_2 IN t.facts) > 0)
                    AND (needle_3 IS NULL OR position(needle_3 IN t.facts) > 0) AS is_wanted
                FROM {schema}.finished AS t
                WHERE t.id >= lows[i] AND t.id < highs[i] ORDER BY t.id DESC LIMIT most
            )
            SELECT i, l.id, NULL::int FROM looked AS l WHERE l.is_wanted
            UNION ALL
            SELECT i, (SELECT l.id FROM looked AS l OFFSET most - 1 LIMIT 1), (SELECT count(*)::int FROM looked);
        END IF;
        IF with_cancelled THEN
            RETURN QUERY WITH looked AS MATERIALIZED (
                SELECT
                    t.id,
                    t.state <> ALL (unwanted) AND (tracks IS NULL OR t.track = ANY (tracks))
                    AND (worker_id IS NULL OR t.worker = worker_id)
                    AND (created_from IS NULL OR t.created_at >= created_from)
                    AND (created_until IS NULL OR t.created_at < created_until)
                    AND (needle_1 IS NULL OR position(needle_1 IN t.facts) > 0)
                    AND (needle_2 IS NULL OR position(needle_2 IN t.facts) > 0)
                    AND (needle_3 IS NULL OR position(needle_3 IN t.facts) > 0) AS is_wanted
                FROM {schema}.finished AS t
                WHERE t.state = 'cancelled' AND t.id >= lows[i] AND t.id < highs[i] ORDER BY t.id DESC LIMIT most
            )
            SELECT i, l.id, NULL::int FROM looked AS l WHERE l.is_wanted
            UNION ALL
            SELECT i, (SELECT l.id FROM looked AS l OFFSET most - 1 LIMIT 1), (SELECT count(*)::int FROM looked);
        END IF;
    END LOOP;
END
$$;

-- name: unfinished_in
-- Unfinished tasks of some states, downwards by id. Takes the id to start below (NULL: the newest), limit; tracks and
-- states, in pairs. Returns ids. Reads the newest of each track and state in `waiting`, all of each track in
-- `pending`, and running tasks from the newest on: the caller knows how many.
CREATE OR REPLACE FUNCTION {schema}.unfinished_in_{version}(below uuid, most int, tracks int[], states text[])
RETURNS TABLE (id uuid)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH wanted AS MATERIALIZED (
        SELECT w.track, w.state FROM unnest(tracks, states) AS w (track, state)
    ), found AS MATERIALIZED (
        SELECT l.id FROM wanted AS w CROSS JOIN LATERAL (
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.state <> 'pending' AND t.track = w.track AND t.state = w.state AND (below IS NULL OR t.id < below)
            ORDER BY t.id DESC LIMIT most
        ) AS l
        WHERE w.state NOT IN ('pending', 'running')
        UNION ALL
        SELECT l.id FROM (
            SELECT r.id FROM {schema}.running AS r
            WHERE r.track = ANY (ARRAY(SELECT w.track FROM wanted AS w WHERE w.state = 'running'))
              AND (below IS NULL OR r.id < below)
            ORDER BY r.id DESC LIMIT most
        ) AS l
        UNION ALL
        SELECT p.id FROM {schema}.pending AS p
        WHERE p.track = ANY (ARRAY(SELECT w.track FROM wanted AS w WHERE w.state = 'pending'))
    )
    SELECT f.id FROM found AS f WHERE below IS NULL OR f.id < below ORDER BY f.id DESC LIMIT most;
END
$$;

-- name: newest_members
-- Members of a workflow downwards by id. Takes the id to start below (NULL: the newest), limit, whether unfinished, dead and
-- finished ones are wanted, the workflow. Returns id, track, state, worker. Reads a range of each index of members.
CREATE OR REPLACE FUNCTION {schema}.newest_members_{version}(
    below uuid, most int, with_tasks boolean, with_dead boolean, with_finished boolean, workflow_id uuid
)
RETURNS TABLE (id uuid, track int, state text, worker text)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT * FROM (
        (
            SELECT t.id, t.track, t.state, t.worker FROM {schema}.unfinished AS t
            WHERE with_tasks AND t.workflow = workflow_id AND t.id < coalesce(below, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            ORDER BY t.id DESC LIMIT most
        )
        UNION ALL
        (
            SELECT t.id, t.track, t.state, t.worker FROM {schema}.dead AS t
            WHERE with_dead AND t.workflow = workflow_id AND t.id < coalesce(below, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            ORDER BY t.id DESC LIMIT most
        )
        UNION ALL
        (
            SELECT t.id, t.track, t.state, t.worker FROM {schema}.finished AS t
            WHERE with_finished AND t.workflow = workflow_id AND t.id < coalesce(below, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            ORDER BY t.id DESC LIMIT most
        )
    ) AS every
    ORDER BY id DESC LIMIT most;
END
$$;
