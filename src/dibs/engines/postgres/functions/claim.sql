-- name: claim
-- Lease the most urgent tasks of queues, as far as that can be decided in one step. Takes now, the
-- generation, worker, sequence, lease (NULL: each task's own), limit, and tracks with the order of their queue, lane,
-- scale and the rank to start at; whether queues are served strictly in order; whether the upkeep has been done; from
-- which instant on, and how far ahead (NULL: without end), to read tasks that are due or expire; which tasks (an object
-- whose keys are their ids: a lookup in it needs no plan of its own) and follow-ups to skip; the tracks of which the
-- start, and the promotion, of a task are wanted events (NULL: none, 0: all); which queues are limited, in order, whether
-- no other is served, and how many tasks of these are wanted; the place of each track's queue among them (0: none), what
-- `choose_limited` takes besides, and how many tasks of a group to ungate at most; if the only queue is fair, what
-- `choose_fair` takes besides (stride NULL: it is not); and if it has a rate, that (else NULL), and the level of its full
-- bucket. Returns the tasks, in any order, and a last row with the status,
-- the ids in the order they are given (NULL: by rank and id), now, when the next task is due or expires (or when to look
-- again), how long the search took, and how long reading what is due took. The status: 'stale' (refresh, and repeat),
-- 'upkeep' (there is some that only the slow path can do), 'limits' (only the slow path can say what they allow), 'done'.
--
-- A single track is read from its head in `pending` and locked in one go; for several, see `choose_merged`. Limited
-- queues are locked first, those that others hold are left out (`lock_for_claim`), and `choose_limited` reads all, unless
-- only the whole queue has slots, or it is fair: then its free ones are counted, and that many are wanted. A rate is spent
-- as long as more than is wanted is left. The blocks of ids of what is given are noted for searches by worker. Expired tasks are left to the upkeep: they may lie before the instant from
-- which it reads. Tasks are returned by the statement that leases them: to sort them here would copy their arguments
-- three times.
CREATE OR REPLACE FUNCTION {schema}.claim_{version}(
    at bigint, generation_of bigint, worker_id text, sequence_number bigint, lease_span bigint, wanted int,
    tracks int[], orders int[], lanes int[], scales bigint[], lows bigint[], in_order boolean,
    skip_upkeep boolean, looks_from bigint, looks_for bigint, passed jsonb, passed_steps bigint[],
    watched int[], watched_due int[], queues text[], is_alone boolean, wanted_limited int, owners int[], slots int[],
    wholes int[], names int[], group_slots int[], counted_tracks int[], counted_groups int[], ahead int,
    fair_tracks int[], stride bigint, weighted text[], strides bigint[], rate float8, full_level bigint
)
RETURNS TABLE (
    status text, given uuid[], now bigint, next_at bigint, id uuid, track int, lease int, lease_expires_at bigint,
    ready_at bigint, rank bigint, args bytea, facts bytea, took bigint, looked bigint
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
    chosen_tracks int[];
    looks_at timestamptz;
    looked_at timestamptz;
    began_at timestamptz;
    found_at timestamptz;
    trait_of text := 'worker ' || worker_id;
    locked text[];
    open text[];
    open_tracks int[];
    is_bounded boolean := false;
    first_block bigint;
    lowest uuid;
    highest uuid;
    blocks bigint[];
    passes boolean := passed <> '{}';
    -- Whether there is one queue, and it has slots or tokens for all of its tasks together, and no other limit.
    is_plain boolean := cardinality(queues) = 1 AND is_alone AND stride IS NULL AND 0 = ALL (names)
        AND num_nonnulls(VARIADIC slots) = 0;
    level bigint;
    filled_at bigint;
    gained float8;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    IF cardinality(queues) > 0 THEN
        SELECT l.got, l.now INTO locked, instant FROM {schema}.lock_for_claim_{version}(queues, at, NOT is_alone) AS l;
        looks_to := coalesce(instant + looks_for, 9223372036854775807);
        lows := ARRAY(
            SELECT CASE WHEN s.owner = 0 OR queues[s.owner] = ANY (locked) THEN s.low ELSE 9223372036854775807 END
            FROM unnest(lows, owners) WITH ORDINALITY AS s (low, owner, k) ORDER BY s.k
        );
    END IF;
    IF rate IS NOT NULL THEN
        SELECT (instant - b.at) * rate * 1000000 / 1000000, b.level, greatest(instant, b.at) INTO gained, level, filled_at
        FROM {schema}.buckets AS b
        WHERE b.queue = queues[1] AND b.scope = 'queue' AND b.whose = '' AND b.level >= 0;
        level := CASE WHEN level IS NULL OR gained >= full_level THEN full_level
            ELSE least(full_level, level + greatest(0, trunc(gained)::bigint)) END;
        filled_at := coalesce(filled_at, instant);
        IF level / 1000000 <= wanted_limited THEN
            RETURN QUERY SELECT
                'limits', NULL::uuid[], instant, NULL::bigint, NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint,
                NULL::bytea, NULL::bytea, 0::bigint, 0::bigint;
            RETURN;
        END IF;
    END IF;
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
        (
            SELECT min(t.expires_at) FROM {schema}.tasks AS t
            WHERE t.expires_at IS NOT NULL AND t.state <> 'running'
              AND t.expires_at >= looks_from AND t.expires_at <= looks_to
              AND NOT passed ? t.id::text
        )
    INTO is_stale, needs_upkeep, due, expiry FROM {schema}.store AS s;
    looked_at := clock_timestamp();
    IF is_stale OR (NOT skip_upkeep AND (needs_upkeep OR expiry <= instant)) THEN
        RETURN QUERY SELECT
            CASE WHEN is_stale THEN 'stale' ELSE 'upkeep' END, NULL::uuid[], instant, NULL::bigint, NULL::uuid, 0, 0,
            0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL::bytea, 0::bigint, 0::bigint;
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
    IF is_plain OR stride IS NOT NULL THEN
        wanted := wanted_limited;
        IF cardinality(group_slots) > 0 THEN
            SELECT least(wanted, group_slots[1] - count(*)) INTO wanted FROM {schema}.tasks AS t
            WHERE t.state = 'running' AND t.track = ANY (counted_tracks);
        END IF;
    END IF;
    IF cardinality(tracks) = 0 OR wanted <= 0 THEN
        chosen := '{}';
    ELSIF stride IS NOT NULL THEN
        IF cardinality(locked) > 0 THEN
            SELECT w.chosen, w.is_bounded INTO chosen, is_bounded
            FROM {schema}.choose_fair_{version}(
                instant, wanted, queues[1], tracks, fair_tracks, stride, weighted, strides, slots[1]
            ) AS w;
            IF chosen IS NULL THEN
                RETURN QUERY SELECT
                    'limits', NULL::uuid[], instant, NULL::bigint, NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint,
                    NULL::bytea, NULL::bytea, 0::bigint, 0::bigint;
                RETURN;
            END IF;
        END IF;
    ELSIF cardinality(queues) > 0 AND NOT is_plain THEN
        SELECT w.chosen, w.open, w.open_tracks, w.is_bounded INTO chosen, open, open_tracks, is_bounded
        FROM {schema}.choose_limited_{version}(
            instant, wanted, wanted_limited, tracks, orders, lanes, scales, lows, in_order, slots,
            ARRAY(SELECT s.owner > 0 FROM unnest(owners) WITH ORDINALITY AS s (owner, k) ORDER BY s.k), wholes, names,
            group_slots, counted_tracks, counted_groups
        ) AS w;
    ELSIF cardinality(tracks) = 1 THEN
        chosen := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.track = tracks[1] AND t.share = '' AND t.rank >= lows[1] AND t.state = 'pending' AND t.gate < 2
              AND (t.expires_at IS NULL OR t.expires_at > instant) AND NOT (passes AND passed ? t.id::text)
            ORDER BY t.track, t.share, t.rank, t.id LIMIT wanted FOR UPDATE SKIP LOCKED
        );
    ELSE
        SELECT w.chosen, w.chosen_tracks INTO chosen, chosen_tracks
        FROM {schema}.choose_merged_{version}(
            instant, wanted, tracks, orders, lanes, scales, lows, in_order, passed
        ) AS w;
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
        UPDATE {schema}.tasks AS t SET
            state = 'running',
            gate = least(t.gate, 1),
            lease = t.lease + 1,
            lease_expires_at = instant + coalesce(lease_span, t.lease_for),
            started_at = instant,
            worker = worker_id,
            sequence = sequence_number,
            progress = NULL
        WHERE t.id = ANY (chosen)
        RETURNING
            NULL::text, NULL::uuid[], NULL::bigint, NULL::bigint, t.id, t.track, t.lease, t.lease_expires_at, t.ready_at,
            t.rank, t.args, t.facts, NULL::bigint, NULL::bigint;
        IF cardinality(tracks) = 1 THEN
            chosen_tracks := array_fill(tracks[1], ARRAY[cardinality(chosen)]);
        ELSIF cardinality(queues) > 0 THEN
            chosen_tracks := ARRAY(SELECT t.track FROM {schema}.tasks AS t WHERE t.id = ANY (chosen));
        END IF;
        INSERT INTO {schema}.count_changes (what, track, n)
        SELECT w.what, c.track, w.sign * c.n
        FROM
            (SELECT u.track, count(*) AS n FROM unnest(chosen_tracks) AS u (track) GROUP BY u.track) AS c,
            (VALUES ('pending', -1), ('running', 1), ('claimed', 1)) AS w (what, sign);
        IF cardinality(open) > 0 THEN
            PERFORM {schema}.ungate_heads_{version}(array_agg(p.partition), array_agg(q.slots), ahead)
            FROM (
                SELECT DISTINCT p.partition
                FROM unnest(open, open_tracks) AS p (partition, track)
                CROSS JOIN LATERAL (
                    SELECT t.gate FROM {schema}.tasks AS t
                    WHERE t.partition = p.partition AND t.state = 'pending' AND t.track = p.track AND t.share = ''
                    ORDER BY t.partition, t.state, t.track, t.share, t.rank, t.id LIMIT 1
                ) AS next
                WHERE next.gate = 2
            ) AS p
            JOIN (
                SELECT DISTINCT queues[s.owner] AS queue, s.slots::bigint AS slots
                FROM unnest(owners, slots) AS s (owner, slots) WHERE s.slots IS NOT NULL
            ) AS q ON q.queue = split_part(p.partition, ' ', 1);
        END IF;
        IF rate IS NOT NULL THEN
            INSERT INTO {schema}.buckets AS b (queue, scope, whose, level, at)
            VALUES (queues[1], 'queue', '', level - 1000000::bigint * cardinality(chosen), filled_at)
            ON CONFLICT (queue, scope, whose) DO UPDATE SET level = excluded.level, at = excluded.at, refill_at = NULL;
        END IF;
        IF watched IS NOT NULL THEN
            PERFORM {schema}.task_events_{version}('task.started', instant, chosen, watched);
        END IF;
        IF expiry IS NOT NULL THEN
            SELECT min(t.expires_at) INTO expiry FROM {schema}.tasks AS t
            WHERE t.expires_at IS NOT NULL AND t.state <> 'running'
              AND t.expires_at >= looks_from AND t.expires_at <= looks_to
              AND NOT passed ? t.id::text;
        END IF;
    END IF;
    IF is_bounded THEN
        due := instant;
    ELSIF cardinality(locked) < cardinality(queues) THEN
        due := least(due, instant + 100000);
    END IF;
    RETURN QUERY SELECT
        'done', CASE WHEN cardinality(tracks) > 1 OR cardinality(queues) > 0 THEN chosen END, instant,
        least(due, expiry, instant + looks_for), NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint, NULL::bytea,
        NULL::bytea, (extract(epoch FROM found_at - began_at) * 1000000)::bigint,
        (extract(epoch FROM looked_at - looks_at) * 1000000)::bigint;
END
$$;
