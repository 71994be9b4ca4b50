-- name: claim
-- Lease the most urgent tasks of queues without limits and shares, in one step. Takes now, the generation, worker,
-- sequence, lease (NULL: each task's own), limit, and tracks with the order of their queue, lane, scale and the rank to
-- start at; whether queues are served strictly in order; whether the upkeep has been done; from which instant on, and
-- how far ahead (NULL: without end), to read tasks that are due or expire; which tasks (an object whose keys are their
-- ids: a lookup in it needs no plan of its own) and follow-ups to skip; the tracks of which the start, and the promotion,
-- of a task are wanted events (NULL: none, 0: all). Returns the tasks in the order they are given,
-- and a last row with the status, now, when the next task is due or expires (or when to look again), how long the
-- search took, and how long reading what is due took. The status: 'stale' (refresh, and repeat), 'upkeep' (there is
-- some that only the slow path can do), 'done'.
--
-- Reads `pending` from the head of each track. A single track is read and locked in one go. Several are merged before
-- anything is locked: locking all candidates would hide them from others. The merge is by the running maximum of the
-- heads' keys, which equals merging sorted lanes by their heads; ids that others have locked are skipped. A row is locked
-- at its place, and by its id: it may be gone by then, and the place another's. Of each track
-- a page is read: if it ends before the track does, nothing is known beyond its last task, and the next round reads
-- more. The blocks of ids of what is given are noted for searches by worker. Expired tasks are left to the upkeep: they may lie before the instant from which it reads.
CREATE OR REPLACE FUNCTION {schema}.claim_{version}(
    at bigint, generation_of bigint, worker_id text, sequence_number bigint, lease_span bigint, wanted int,
    tracks int[], orders int[], lanes int[], scales bigint[], lows bigint[], in_order boolean,
    skip_upkeep boolean, looks_from bigint, looks_for bigint, passed jsonb, passed_steps bigint[],
    watched int[], watched_due int[]
)
RETURNS TABLE (
    status text, now bigint, next_at bigint, id uuid, track int, lease int, lease_expires_at bigint, ready_at bigint,
    rank bigint, args bytea, facts bytea, took bigint, looked bigint
)
-- Whatever the planner estimates for a table that fills and empties all the time, it may only use the indexes.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    looks_to bigint := coalesce(instant + looks_for, 9223372036854775807);
    is_stale boolean;
    needs_upkeep boolean;
    due bigint;
    promoted int;
    expiry bigint;
    chosen uuid[];
    places tid[];
    picked uuid[];
    picked_places tid[];
    missed uuid[] := '{}';
    skips_none boolean := passed = '{}';
    page int;
    is_truncated boolean;
    held uuid[];
    held_places tid[];
    tries int := 0;
    looks_at timestamptz;
    looked_at timestamptz;
    began_at timestamptz;
    found_at timestamptz;
    trait_of text := 'worker ' || worker_id;
    first_block bigint;
    lowest uuid;
    highest uuid;
    blocks bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    looks_at := clock_timestamp();
    SELECT
        s.generation <> generation_of,
        EXISTS (SELECT 1 FROM {schema}.steps AS e WHERE e.id IS NULL AND e.n <> ALL (passed_steps)) OR EXISTS (
            SELECT 1 FROM {schema}.tasks AS t
            WHERE t.due_at IS NOT NULL AND t.due_at >= looks_from AND t.due_at <= instant AND t.gate > 0
              AND NOT passed ? t.id::text
        ),
        (
            SELECT min(t.due_at) FROM {schema}.tasks AS t
            WHERE t.due_at IS NOT NULL AND t.due_at >= looks_from AND t.due_at <= looks_to
              AND NOT passed ? t.id::text
        ),
        {schema}.next_expiry_{version}(looks_from, looks_to, passed)
    INTO is_stale, needs_upkeep, due, expiry FROM {schema}.store AS s;
    looked_at := clock_timestamp();
    IF is_stale OR (NOT skip_upkeep AND (needs_upkeep OR expiry <= instant)) THEN
        RETURN QUERY SELECT
            CASE WHEN is_stale THEN 'stale' ELSE 'upkeep' END, instant, NULL::bigint, NULL::uuid, 0, 0, 0::bigint,
            0::bigint, 0::bigint, NULL::bytea, NULL::bytea, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF due <= instant THEN
        promoted := {schema}.promote_{version}(instant, 1000, looks_from, watched_due);
        SELECT min(t.due_at) INTO due FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.due_at >= looks_from AND t.due_at <= looks_to
          AND NOT passed ? t.id::text;
        IF due <= instant AND promoted < 1000 THEN  -- another transaction has locked it: don't retry at once
            due := instant + 100000;
        END IF;
    END IF;
    began_at := clock_timestamp();
    IF cardinality(tracks) = 0 OR wanted <= 0 THEN
        chosen := '{}';
    ELSIF cardinality(tracks) = 1 THEN
        SELECT array_agg(f.id), array_agg(f.place) INTO chosen, places FROM (
            SELECT p.id, p.ctid AS place FROM {schema}.pending AS p
            WHERE p.track = tracks[1] AND NOT p.gated AND p.share = '' AND p.rank >= lows[1]
              AND (p.expires_at IS NULL OR p.expires_at > instant) AND (skips_none OR NOT passed ? p.id::text)
            ORDER BY p.track, p.gated, p.share, p.rank, p.id LIMIT wanted FOR UPDATE SKIP LOCKED
        ) AS f;
    ELSE
        chosen := '{}';
        places := '{}';
        page := greatest(8, 2 * wanted / cardinality(tracks));
        WHILE cardinality(chosen) < wanted AND tries < 20 LOOP
            tries := tries + 1;
            WITH merged AS MATERIALIZED (
                SELECT
                    h.id, h.place, h.rank, h.n = page AND page < wanted AS is_truncated,
                    max(CASE WHEN in_order THEN ARRAY[h.position::float8] ELSE '{}' END || ARRAY[
                        -least((instant - h.rank)::float8 / h.scale::float8, 100), h.ready_at::float8,
                        h.position::float8, h.lane::float8
                    ]) OVER (PARTITION BY h.position, h.lane ORDER BY h.rank, h.id) AS key
                FROM (
                    SELECT s.position, s.lane, s.scale, c.id, c.place, c.rank, c.ready_at, c.n
                    FROM unnest(tracks, orders, lanes, scales, lows) AS s (track, position, lane, scale, low)
                    CROSS JOIN LATERAL (
                        SELECT
                            p.id, p.ctid AS place, p.rank, p.ready_at,
                            row_number() OVER (ORDER BY p.track, p.gated, p.share, p.rank, p.id) AS n
                        FROM {schema}.pending AS p
                        WHERE p.track = s.track AND NOT p.gated AND p.share = '' AND p.rank >= s.low
                          AND p.id <> ALL (missed)
                          AND (p.expires_at IS NULL OR p.expires_at > instant)
                          AND (skips_none OR NOT passed ? p.id::text)
                        ORDER BY p.track, p.gated, p.share, p.rank, p.id
                        LIMIT page
                    ) AS c
                ) AS h
            ), known AS (
                SELECT m.key, m.rank, m.id FROM merged AS m WHERE m.is_truncated ORDER BY m.key, m.rank, m.id LIMIT 1
            ), next AS (
                SELECT m.id, m.place FROM merged AS m LEFT JOIN known AS k ON true
                WHERE (k.id IS NULL OR (m.key, m.rank, m.id) <= (k.key, k.rank, k.id)) AND m.id <> ALL (chosen)
                ORDER BY m.key, m.rank, m.id LIMIT wanted - cardinality(chosen)
            )
            SELECT ARRAY(SELECT n.id FROM next AS n), ARRAY(SELECT n.place FROM next AS n), EXISTS (SELECT 1 FROM known)
            INTO picked, picked_places, is_truncated;
            EXIT WHEN cardinality(picked) = 0 AND NOT is_truncated;
            IF is_truncated THEN
                page := least(4 * page, wanted);
            END IF;
            SELECT array_agg(f.id), array_agg(f.place) INTO held, held_places FROM (
                SELECT p.id, p.ctid AS place FROM {schema}.pending AS p
                WHERE p.ctid = ANY (picked_places) AND (p.id IN (SELECT unnest(picked))) IS TRUE
                ORDER BY p.id FOR UPDATE SKIP LOCKED
            ) AS f;
            places := places || held_places;
            IF cardinality(held) = cardinality(picked) THEN
                chosen := chosen || picked;
            ELSE
                chosen := chosen || ARRAY(
                    SELECT u.p FROM unnest(picked) WITH ORDINALITY AS u (p, k) WHERE u.p = ANY (held) ORDER BY u.k
                );
                missed := missed || ARRAY(SELECT p FROM unnest(picked) AS p WHERE (p = ANY (held)) IS NOT TRUE);
            END IF;
        END LOOP;
    END IF;
    found_at := clock_timestamp();
    IF cardinality(chosen) > 0 THEN
        -- Often all are in one block: comparing ids costs far less than taking the block of each.
        first_block := {schema}.block_of_{version}(chosen[1]);
        lowest := {schema}.first_of_block_{version}(first_block);
        highest := {schema}.last_of_block_{version}(first_block);
        blocks := first_block || ARRAY(
            SELECT DISTINCT {schema}.block_of_{version}(c.id) FROM unnest(chosen) AS c (id)
            WHERE c.id < lowest OR c.id > highest
        );
        IF cardinality(blocks) > 4 THEN
            trait_of := 'wide worker ' || worker_id;
            blocks := ARRAY(SELECT DISTINCT b.block / 16 * 16 FROM unnest(blocks) AS b (block));
        END IF;
        INSERT INTO {schema}.blocks (trait, block) SELECT trait_of, b.block FROM unnest(blocks) AS b (block)
        WHERE NOT EXISTS (SELECT 1 FROM {schema}.blocks AS k WHERE k.trait = trait_of AND k.block = b.block);
        RETURN QUERY
        WITH gone AS (
            DELETE FROM {schema}.pending AS p
            WHERE p.ctid = ANY (places)
            RETURNING p.id
        ), given AS MATERIALIZED (
            SELECT
                t.id, t.track, t.lease + 1 AS lease, instant + coalesce(lease_span, t.lease_for) AS lease_expires_at,
                t.ready_at, t.rank, t.args, t.facts, t.partition, t.version, t.gate, t.followed
            FROM {schema}.tasks AS t
            WHERE t.id = ANY (ARRAY(SELECT g.id FROM gone AS g)) AND t.state = 'pending'
        ), made AS (
            INSERT INTO {schema}.leases AS l (expires_at, started_at, sequence, worker, size, ids)
            SELECT g.lease_expires_at, instant, sequence_number, worker_id, count(*), array_agg(g.id)
            FROM given AS g GROUP BY g.lease_expires_at
            RETURNING l.batch, l.expires_at
        ), put AS (
            INSERT INTO {schema}.running (id, batch, track, lease, version, gate, counted, followed, partition)
            SELECT g.id, m.batch, g.track, g.lease, g.version, g.gate, false, g.followed, g.partition
            FROM given AS g JOIN made AS m ON m.expires_at = g.lease_expires_at
        ), counted AS (
            INSERT INTO {schema}.count_changes (what, track, n)
            SELECT w.what, c.track, w.sign * c.n
            FROM
                (SELECT g.track, count(*) AS n FROM given AS g GROUP BY g.track) AS c,
                (VALUES ('pending', -1), ('running', 1), ('claimed', 1)) AS w (what, sign)
        )
        SELECT
            NULL::text, NULL::bigint, NULL::bigint, g.id, g.track, g.lease, g.lease_expires_at, g.ready_at, g.rank,
            g.args, g.facts, NULL::bigint, NULL::bigint
        FROM given AS g JOIN unnest(chosen) WITH ORDINALITY AS c (id, k) ON c.id = g.id ORDER BY c.k;
        IF watched IS NOT NULL THEN
            PERFORM {schema}.task_events_{version}('task.started', instant, chosen, watched);
        END IF;
        IF expiry IS NOT NULL THEN
            expiry := {schema}.next_expiry_{version}(looks_from, looks_to, passed);
        END IF;
    END IF;
    RETURN QUERY SELECT
        'done', instant, least(due, expiry, instant + looks_for), NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint,
        NULL::bytea, NULL::bytea, (extract(epoch FROM found_at - began_at) * 1000000)::bigint,
        (extract(epoch FROM looked_at - looks_at) * 1000000)::bigint;
END
$$;

-- name: next_expiry
-- When the next waiting task expires. Takes the instants from which and to which to read, tasks to skip (as `claim`). Reads
-- ranges of `pending_expiries` and `expiries`.
CREATE OR REPLACE FUNCTION {schema}.next_expiry_{version}(looks_from bigint, looks_to bigint, passed jsonb)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN least(
        (
            SELECT min(p.expires_at) FROM {schema}.pending AS p
            WHERE p.expires_at IS NOT NULL AND p.expires_at >= looks_from AND p.expires_at <= looks_to
              AND NOT passed ? p.id::text
        ),
        (
            SELECT min(t.expires_at) FROM {schema}.tasks AS t
            WHERE t.expires_at IS NOT NULL AND t.state <> 'pending'
              AND t.expires_at >= looks_from AND t.expires_at <= looks_to AND NOT passed ? t.id::text
        )
    );
END
$$;

-- name: start
-- Lease pending tasks of queues that may have limits, as `claim` does (where another call would copy all rows once more).
-- Takes the places of their rows in `pending`, which this transaction has locked; now, worker, sequence,
-- lease (NULL: each task's own). Returns what a worker needs, share and partition, in no order; without those that have
-- expired. The number of a lease only ever grows: it is the fence. The tasks' own rows are only read, by id.
CREATE OR REPLACE FUNCTION {schema}.start_{version}(
    places tid[], instant bigint, worker_id text, sequence_number bigint, lease_span bigint
)
RETURNS TABLE (
    id uuid, track int, lease int, lease_expires_at bigint, ready_at bigint, rank bigint, args bytea, facts bytea,
    share text, partition text
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM {schema}.pending AS p
        WHERE p.ctid = ANY (places) AND (p.expires_at IS NULL OR p.expires_at > instant)
        RETURNING p.id
    ), given AS MATERIALIZED (
        SELECT
            t.id, t.track, t.lease + 1 AS lease, instant + coalesce(lease_span, t.lease_for) AS lease_expires_at,
            t.ready_at, t.rank, t.args, t.facts, t.share, t.partition, t.version, t.gate, t.followed
        FROM {schema}.tasks AS t
        WHERE t.id = ANY (ARRAY(SELECT g.id FROM gone AS g)) AND t.state = 'pending'
    ), made AS (
        INSERT INTO {schema}.leases AS l (expires_at, started_at, sequence, worker, size, ids)
        SELECT g.lease_expires_at, instant, sequence_number, worker_id, count(*), array_agg(g.id)
        FROM given AS g GROUP BY g.lease_expires_at
        RETURNING l.batch, l.expires_at
    ), put AS (
        INSERT INTO {schema}.running (id, batch, track, lease, version, gate, counted, followed, partition)
        SELECT g.id, m.batch, g.track, g.lease, g.version, g.gate, true, g.followed, g.partition
        FROM given AS g JOIN made AS m ON m.expires_at = g.lease_expires_at
    )
    SELECT
        g.id, g.track, g.lease, g.lease_expires_at, g.ready_at, g.rank, g.args, g.facts, g.share, g.partition
    FROM given AS g;
END
$$;
