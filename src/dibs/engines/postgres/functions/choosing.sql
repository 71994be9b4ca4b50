-- name: choose_merged
-- Choose the most urgent tasks of several tracks. Takes now, how many are wanted, tracks with the order of their queue,
-- lane, scale and the rank to start at, whether queues are served strictly in order, and tasks to skip (an object whose
-- keys are their ids). Returns tasks, locked, in the order they are given, and their tracks.
--
-- Reads a page of `pending` from the head of each track. They are merged before anything is locked: locking all candidates
-- would hide them from others. The merge is that of sorted lanes by their heads: within a lane, a head holds back all
-- behind it, so the later ready_at of equally urgent ones counts. If a page ends before its track does, nothing is known
-- beyond its last task: the next round reads on behind what was chosen, and more of the track that ended first. What
-- others have locked is skipped.
CREATE OR REPLACE FUNCTION {schema}.choose_merged_{version}(
    instant bigint, wanted int, tracks int[], orders int[], lanes int[], scales bigint[], lows bigint[],
    in_order boolean, passed jsonb, OUT chosen uuid[], OUT chosen_tracks int[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    passes boolean := passed <> '{}';
    share float8 := wanted::float8 / cardinality(tracks);
    -- What may come from one of equal tracks: with several, more than the mean, so that one round is enough mostly.
    page int := least(wanted, greatest(2, ceil(share + 3 * sqrt(share))));
    pages int[] := array_fill(page, ARRAY[cardinality(tracks)]);
    behind uuid[] := array_fill('00000000-0000-0000-0000-000000000000'::uuid, ARRAY[cardinality(tracks)]);
    picked uuid[];
    places int[];
    picked_tracks int[];
    ranks bigint[];
    held uuid[];
    ended int;
BEGIN
    chosen := '{}';
    chosen_tracks := '{}';
    FOR round IN 1..20 LOOP
        WITH read AS MATERIALIZED (
            SELECT
                s.k, s.track, s.position, s.lane, c.id, c.rank, c.ready_at,
                c.n = s.page AND s.page < wanted AS is_last,
                CASE WHEN in_order THEN s.position ELSE 0 END AS turn,
                -least((instant - c.rank)::float8 / s.scale::float8, 100) AS urgency
            FROM unnest(tracks, orders, lanes, scales, lows, behind, pages) WITH ORDINALITY
                AS s (track, position, lane, scale, low, behind, page, k)
            CROSS JOIN LATERAL (
                SELECT t.id, t.rank, t.ready_at, row_number() OVER (ORDER BY t.track, t.share, t.rank, t.id) AS n
                FROM {schema}.tasks AS t
                WHERE t.track = s.track AND t.share = '' AND (t.rank, t.id) > (s.low, s.behind)
                  AND t.state = 'pending' AND t.gate < 2 AND (t.expires_at IS NULL OR t.expires_at > instant)
                  AND NOT (passes AND passed ? t.id::text)
                ORDER BY t.track, t.share, t.rank, t.id
                LIMIT s.page
            ) AS c
        ), merged AS MATERIALIZED (
            SELECT r.*, max(r.ready_at) OVER (PARTITION BY r.position, r.lane, r.urgency ORDER BY r.rank, r.id) AS since
            FROM read AS r
        ), known AS (
            SELECT * FROM merged AS m WHERE m.is_last
            ORDER BY m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id LIMIT 1
        ), best AS (
            SELECT m.id, m.k, m.track, m.rank FROM merged AS m LEFT JOIN known AS k ON true
            WHERE k.id IS NULL
               OR (m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id)
                   <= (k.turn, k.urgency, k.since, k.position, k.lane, k.rank, k.id)
            ORDER BY m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id LIMIT wanted - cardinality(chosen)
        )
        SELECT array_agg(b.id), array_agg(b.k), array_agg(b.track), array_agg(b.rank), (SELECT k.k FROM known AS k)
        INTO picked, places, picked_tracks, ranks, ended FROM best AS b;
        EXIT WHEN picked IS NULL;
        held := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (picked) AND t.state = 'pending' ORDER BY t.id FOR UPDATE SKIP LOCKED
        );
        IF cardinality(held) = cardinality(picked) THEN
            chosen := chosen || picked;
            chosen_tracks := chosen_tracks || picked_tracks;
            EXIT WHEN ended IS NULL;
        ELSE
            FOR i IN 1..cardinality(picked) LOOP
                IF picked[i] = ANY (held) THEN
                    chosen := chosen || picked[i];
                    chosen_tracks := chosen_tracks || picked_tracks[i];
                END IF;
            END LOOP;
        END IF;
        EXIT WHEN cardinality(chosen) >= wanted;
        FOR i IN 1..cardinality(picked) LOOP
            lows[places[i]] := ranks[i];
            behind[places[i]] := picked[i];
        END LOOP;
        IF ended IS NOT NULL THEN
            pages[ended] := greatest(pages[ended], wanted - cardinality(chosen));
        END IF;
    END LOOP;
END
$$;

-- name: choose_limited
-- Choose the most urgent tasks of queues of which some have slots: limits on how many run at once, for the whole queue,
-- and for partitions or for names (for both, as for two lanes, what may start depends on what else does: that is not
-- for one statement). Takes now, how many are wanted, how many of them may be of limited queues, tracks with the order
-- of their queue, lane, scale and the rank to start at, whether queues are served strictly in order; of each track: the
-- slots of a partition (NULL: any number), whether its queue is limited, and the numbers of the groups whose slots its
-- tasks take (0: none); the slots of the groups, and which tracks count in which of them. Returns tasks, locked, in the
-- order they are given; partitions where more may start, and the next task may be gated, with its track; and whether the
-- search stopped at a bound. The queues' locks are held.
--
-- Reads a page of `pending` from the head of each track, and counts what runs: in its partitions, a range of
-- `partitions` each, and in groups, ranges of `leases`. If two may start in a partition, gated ones may be next there: a
-- seek in `gated_groups` each, unless all gated ones of the track come later, which a seek in `gated` tells. The merge
-- is that of `choose_merged`. What is met of full partitions is gated, so that the next claim does not meet it; a group that is
-- full ends the reading of its tracks. All this again until enough is found.
CREATE OR REPLACE FUNCTION {schema}.choose_limited_{version}(
    instant bigint, wanted int, wanted_limited int, tracks int[], orders int[], lanes int[], scales bigint[],
    lows bigint[], in_order boolean, slots int[], limited boolean[], wholes int[], names int[], group_slots int[],
    counted_tracks int[], counted_groups int[], OUT chosen uuid[], OUT open text[], OUT open_tracks int[],
    OUT is_bounded boolean
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    share float8 := wanted::float8 / greatest(1, cardinality(tracks));
    page int := least(wanted, greatest(2, ceil(share + 3 * sqrt(share))));
    pages int[] := array_fill(page, ARRAY[cardinality(tracks)]);
    budget int := 1000;
    group_free int[];
    gated_from bigint[];
    taken text[] := '{}';
    missed uuid[] := '{}';
    picked uuid[];
    held uuid[];
    blocked uuid[];
    places int[];
    partitions text[];
    ended int;
    gated int;
    c record;
BEGIN
    chosen := '{}';
    open := '{}';
    open_tracks := '{}';
    is_bounded := false;
    group_free := ARRAY(
        SELECT g.slots - (
            SELECT count(*) FROM {schema}.tasks AS r
            WHERE r.state = 'running' AND r.track = ANY (ARRAY(
                SELECT w.track FROM unnest(counted_tracks, counted_groups) AS w (track, k) WHERE w.k = g.k
            ))
        )
        FROM unnest(group_slots) WITH ORDINALITY AS g (slots, k) ORDER BY g.k
    );
    gated_from := ARRAY(
        SELECT CASE WHEN s.slots IS NOT NULL THEN (
            SELECT t.rank FROM {schema}.tasks AS t
            WHERE t.track = s.track AND t.share = '' AND t.state = 'pending' AND t.gate = 2
            ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
        ) END
        FROM unnest(tracks, slots) WITH ORDINALITY AS s (track, slots, k) ORDER BY s.k
    );
    WHILE cardinality(chosen) < wanted LOOP
        picked := '{}';
        blocked := '{}';
        places := '{}';
        partitions := '{}';
        ended := NULL;
        FOR c IN
            WITH read AS MATERIALIZED (
                SELECT
                    s.k, s.track, s.position, s.lane, s.scale, s.slots, s.page, h.id, h.rank, h.ready_at, h.partition, h.n,
                    CASE WHEN first_value(h.n) OVER w = s.page THEN first_value(h.rank) OVER w
                        ELSE 9223372036854775807
                    END AS last_rank,
                    first_value(h.id) OVER w AS last_id
                FROM unnest(tracks, orders, lanes, scales, lows, slots, wholes, names, pages) WITH ORDINALITY
                    AS s (track, position, lane, scale, low, slots, whole, name, page, k)
                CROSS JOIN LATERAL (
                    SELECT
                        t.id, t.rank, t.ready_at, t.partition,
                        row_number() OVER (ORDER BY t.track, t.share, t.rank, t.id) AS n
                    FROM {schema}.tasks AS t
                    WHERE t.track = s.track AND t.share = '' AND t.rank >= s.low AND t.state = 'pending'
                      AND t.gate < 2 AND t.id <> ALL (missed) AND t.id <> ALL (chosen)
                      AND (t.expires_at IS NULL OR t.expires_at > instant)
                    ORDER BY t.track, t.share, t.rank, t.id
                    LIMIT s.page
                ) AS h
                WHERE (s.whole = 0 OR group_free[s.whole] > 0) AND (s.name = 0 OR group_free[s.name] > 0)
                  AND (NOT limited[s.k] OR cardinality(chosen) < wanted_limited)
                WINDOW w AS (PARTITION BY s.k ORDER BY h.n DESC)
            ), counted AS (
                SELECT
                    g.*,
                    row_number() OVER (PARTITION BY g.partition, g.k ORDER BY g.n) = 1 AS is_first,
                    -- The load of a partition is read once, at its first task: a join would be a nested loop.
                    CASE WHEN g.slots IS NOT NULL AND row_number() OVER (PARTITION BY g.partition ORDER BY g.k, g.n) = 1
                        THEN g.slots - (SELECT count(*) FROM unnest(taken) AS q WHERE q = g.partition) - (
                            SELECT count(*) FROM {schema}.tasks AS r
                            WHERE r.partition = g.partition AND r.state = 'running'
                        )
                    END AS first_free
                FROM read AS g
            ), loaded AS MATERIALIZED (
                SELECT
                    g.*,
                    CASE WHEN g.slots IS NOT NULL AND g.partition IS NOT NULL
                        THEN dense_rank() OVER (ORDER BY g.partition)
                    END AS number,
                    dense_rank() OVER (ORDER BY g.partition, g.k) AS group_number,
                    max(g.first_free) OVER (PARTITION BY g.partition) AS free
                FROM counted AS g
            ), candidates AS (
                SELECT g.k, g.position, g.lane, g.scale, g.id, g.rank, g.ready_at, g.partition, g.number, g.free,
                    g.group_number, g.n, g.n = g.page AS is_last
                FROM loaded AS g
                UNION ALL
                SELECT
                    g.k, g.position, g.lane, g.scale, h.id, h.rank, h.ready_at, g.partition, g.number, g.free,
                    g.group_number, NULL::bigint, false
                FROM loaded AS g
                CROSS JOIN LATERAL (
                    SELECT t.id, t.rank, t.ready_at FROM {schema}.tasks AS t
                    WHERE t.partition = g.partition AND t.state = 'pending' AND t.gate > 1 AND t.track = g.track
                      AND t.share = '' AND t.id <> ALL (missed) AND t.id <> ALL (chosen)
                      AND (t.rank, t.id) < (g.last_rank, g.last_id)
                      AND (t.expires_at IS NULL OR t.expires_at > instant)
                    ORDER BY t.partition, t.track, t.share, t.rank, t.id LIMIT least(g.free, wanted)
                ) AS h
                WHERE g.is_first AND g.number IS NOT NULL AND g.free > 1 AND gated_from[g.k] <= g.last_rank
            ), placed AS (
                SELECT
                    m.*,
                    (m.number IS NULL OR row_number() OVER (PARTITION BY m.number ORDER BY m.rank, m.id) <= m.free)
                        AS has_slot,
                    m.free - row_number() OVER (PARTITION BY m.number ORDER BY m.rank, m.id) AS room,
                    names[m.k] = 0
                        OR row_number() OVER (PARTITION BY names[m.k] ORDER BY m.rank, m.id) <= group_free[names[m.k]]
                        AS may_start,
                    CASE WHEN in_order THEN m.position ELSE 0 END AS turn,
                    -least((instant - m.rank)::float8 / m.scale::float8, 100) AS urgency
                FROM candidates AS m
            ), merged AS MATERIALIZED (
                SELECT
                    m.*,
                    -- What may not start does not hold back what comes behind it.
                    coalesce(
                        max(m.ready_at) FILTER (WHERE m.has_slot AND m.may_start)
                            OVER (PARTITION BY m.position, m.lane, m.urgency ORDER BY m.rank, m.id),
                        0
                    ) AS since
                FROM placed AS m
            ), known AS (
                SELECT * FROM merged AS m WHERE m.is_last
                ORDER BY m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id LIMIT 1
            )
            SELECT
                m.id, m.k, m.n, m.partition, m.has_slot, m.may_start, k.k AS ended,
                m.number IS NOT NULL AND m.room > 0 AND gated_from[m.k] IS NOT NULL
                    AND lead(m.n) OVER (PARTITION BY m.group_number ORDER BY m.rank, m.id) IS NULL AS may_follow
            FROM merged AS m LEFT JOIN known AS k ON true
            WHERE k.id IS NULL
               OR (m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id)
                   <= (k.turn, k.urgency, k.since, k.position, k.lane, k.rank, k.id)
            ORDER BY m.turn, m.urgency, m.since, m.position, m.lane, m.rank, m.id
        LOOP
            ended := c.ended;
            EXIT WHEN cardinality(chosen) + cardinality(picked) >= wanted OR cardinality(blocked) >= budget;
            CONTINUE WHEN NOT c.may_start OR (wholes[c.k] > 0 AND group_free[wholes[c.k]] <= 0)
                OR (limited[c.k] AND cardinality(chosen) + cardinality(picked) >= wanted_limited);
            IF NOT c.has_slot THEN
                IF c.n IS NOT NULL THEN
                    blocked := blocked || c.id;
                END IF;
                CONTINUE;
            END IF;
            IF c.may_follow THEN
                open := open || c.partition;
                open_tracks := open_tracks || tracks[c.k];
            END IF;
            IF wholes[c.k] > 0 THEN
                group_free[wholes[c.k]] := group_free[wholes[c.k]] - 1;
            END IF;
            IF names[c.k] > 0 THEN
                group_free[names[c.k]] := group_free[names[c.k]] - 1;
            END IF;
            picked := picked || c.id;
            places := places || c.k::int;
            partitions := partitions || c.partition;
        END LOOP;
        IF cardinality(blocked) > 0 THEN
            WITH shut AS MATERIALIZED (
                SELECT t.id FROM {schema}.tasks AS t
                WHERE t.id = ANY (blocked) AND t.state = 'pending' AND t.gate < 2 ORDER BY t.id FOR UPDATE SKIP LOCKED
            )
            UPDATE {schema}.tasks AS t SET gate = 2 FROM shut WHERE t.id = shut.id;
            GET DIAGNOSTICS gated = ROW_COUNT;
            IF gated < cardinality(blocked) THEN
                missed := missed || blocked;
            END IF;
            budget := budget - cardinality(blocked);
        END IF;
        held := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (picked) AND t.state = 'pending'
              AND ((t.id, t.track, coalesce(t.partition, '')) IN (
                  SELECT p.id, tracks[p.place], coalesce(p.partition, '')
                  FROM unnest(picked, places, partitions) AS p (id, place, partition)
              )) IS TRUE
            ORDER BY t.id FOR UPDATE SKIP LOCKED
        );
        IF cardinality(held) = cardinality(picked) THEN
            chosen := chosen || picked;
            taken := taken || partitions;
        ELSE
            FOR i IN 1..cardinality(picked) LOOP
                IF picked[i] = ANY (held) THEN
                    chosen := chosen || picked[i];
                    taken := taken || partitions[i];
                ELSE
                    missed := missed || picked[i];
                    IF wholes[places[i]] > 0 THEN
                        group_free[wholes[places[i]]] := group_free[wholes[places[i]]] + 1;
                    END IF;
                    IF names[places[i]] > 0 THEN
                        group_free[names[places[i]]] := group_free[names[places[i]]] + 1;
                    END IF;
                END IF;
            END LOOP;
        END IF;
        IF budget <= 0 THEN
            is_bounded := true;
            EXIT;
        END IF;
        EXIT WHEN ended IS NULL AND cardinality(held) = cardinality(picked);
        IF ended IS NOT NULL THEN
            pages[ended] := least(1000, CASE WHEN picked = '{}' THEN 4 * pages[ended] ELSE wanted - cardinality(chosen) END);
        END IF;
    END LOOP;
END
$$;

-- name: choose_fair
-- Choose the next tasks of a fair queue, and advance the virtual times of their shares. Takes now, how many are wanted,
-- the queue, tracks of one lane, all fair tracks of the queue, the stride of shares without a weight, shares with weights
-- and their strides, and the slots of a partition (NULL: any number). Returns tasks, locked, in the order they are given,
-- and whether the search stopped at a bound. The queue's lock is held. Returns NULL, and changes nothing, if a partition of
-- these tasks would be too full, or has gated ones, which may be next: that is not for one statement.
--
-- The i-th task of a share starts, in virtual time, i - 1 strides after its first, which starts when its turn comes or,
-- if the clock has passed that, now: so the order is a sort. Reads the first turns of each track (`first_turns`) and a
-- stretch of `pending` for each share in them: nothing is known behind the last turn that was read, and from the start
-- that the task behind a stretch would have. If that is too little, longer ones are read. Turns that have no task are
-- deleted.
CREATE OR REPLACE FUNCTION {schema}.choose_fair_{version}(
    instant bigint, wanted int, queue_name text, tracks int[], fair_tracks int[], usual_stride bigint,
    weighted text[], strides bigint[], slots int, OUT chosen uuid[], OUT is_bounded boolean
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    turns int := wanted + 2;
    page int;
    clock_at bigint := (SELECT q.clock FROM {schema}.queues AS q WHERE q.name = queue_name);
    turn_tracks int[];
    turn_times bigint[];
    turn_shares text[];
    edge_start bigint;
    edge_share text;
    missed uuid[] := '{}';
    chosen_shares text[];
    starts bigint[];
    held uuid[];
    idle_tracks int[];
    idle_shares text[];
    is_truncated boolean;
    served text[];
    virtual_times bigint[];
    counts int[];
BEGIN
    LOOP
        SELECT array_agg(f.track), array_agg(greatest(f.virtual_time, clock_at)), array_agg(f.share)
        INTO turn_tracks, turn_times, turn_shares
        FROM {schema}.first_turns_{version}(tracks, clock_at, turns) AS f;
        -- Of a track with so many turns, those behind the last one were not read.
        SELECT e.start, e.share INTO edge_start, edge_share
        FROM (
            SELECT
                f.start, f.share, count(*) OVER (PARTITION BY f.track) AS n,
                row_number() OVER (PARTITION BY f.track ORDER BY f.start DESC, f.share DESC) AS last
            FROM unnest(turn_tracks, turn_times, turn_shares) AS f (track, start, share)
        ) AS e
        WHERE e.n >= turns AND e.last = 1 ORDER BY e.start, e.share LIMIT 1;
        page := ceil(turns::float8 / greatest(1, cardinality(turn_shares)))
            + CASE WHEN cardinality(turn_shares) < turns OR cardinality(weighted) > 0 THEN 1 ELSE 0 END;
        WITH heads AS MATERIALIZED (
            SELECT f.track, f.start, f.share, h.id, h.rank, h.n
            FROM unnest(turn_tracks, turn_times, turn_shares) AS f (track, start, share)
            LEFT JOIN LATERAL (
                SELECT t.id, t.rank, row_number() OVER (ORDER BY t.track, t.share, t.rank, t.id) AS n
                FROM {schema}.tasks AS t
                WHERE t.track = f.track AND t.share = f.share AND t.state = 'pending' AND t.gate < 2
                  AND t.id <> ALL (missed) AND (t.expires_at IS NULL OR t.expires_at > instant)
                ORDER BY t.track, t.share, t.rank, t.id LIMIT page
            ) AS h ON true
            WHERE edge_start IS NULL OR (f.start, f.share) <= (edge_start, edge_share)
        ), placed AS MATERIALIZED (
            SELECT
                h.id, h.share, h.n, coalesce(w.stride, usual_stride) AS stride,
                h.start + coalesce(w.stride, usual_stride)
                    * (row_number() OVER (PARTITION BY h.share ORDER BY h.rank, h.id) - 1) AS start
            FROM heads AS h LEFT JOIN unnest(weighted, strides) AS w (share, stride) ON w.share = h.share
            WHERE h.id IS NOT NULL
        ), unknown AS (
            SELECT p.start + p.stride AS start, p.share FROM placed AS p WHERE p.n = page
            ORDER BY p.start + p.stride, p.share LIMIT 1
        ), given AS (
            SELECT p.id, p.share, p.start, row_number() OVER (ORDER BY p.start, p.share) AS k
            FROM placed AS p LEFT JOIN unknown AS u ON true
            WHERE (u.start IS NULL OR (p.start, p.share) < (u.start, u.share))
              AND (edge_start IS NULL OR (p.start, p.share) <= (edge_start, edge_share))
            ORDER BY p.start, p.share LIMIT wanted
        )
        SELECT
            (SELECT array_agg(g.id ORDER BY g.k) FROM given AS g),
            (SELECT array_agg(g.share ORDER BY g.k) FROM given AS g),
            (SELECT array_agg(g.start ORDER BY g.k) FROM given AS g),
            (SELECT array_agg(h.track) FROM heads AS h WHERE h.id IS NULL),
            (SELECT array_agg(h.share) FROM heads AS h WHERE h.id IS NULL),
            edge_start IS NOT NULL OR EXISTS (SELECT 1 FROM unknown)
        INTO chosen, chosen_shares, starts, idle_tracks, idle_shares, is_truncated;
        is_bounded := false;
        IF coalesce(cardinality(chosen), 0) < wanted AND is_truncated AND turns < 4000 THEN
            turns := 4 * turns;
            CONTINUE;
        END IF;
        is_bounded := coalesce(cardinality(chosen), 0) < wanted AND is_truncated;
        held := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (chosen) AND t.state = 'pending'
              AND ((t.id, t.share) IN (SELECT c.id, c.share FROM unnest(chosen, chosen_shares) AS c (id, share))) IS TRUE
            ORDER BY t.id FOR UPDATE SKIP LOCKED
        );
        EXIT WHEN cardinality(held) = coalesce(cardinality(chosen), 0);
        missed := missed || ARRAY(SELECT c FROM unnest(chosen) AS c WHERE c <> ALL (held));
    END LOOP;
    IF slots IS NOT NULL AND EXISTS (
        SELECT FROM (
            SELECT t.partition, count(*) AS n FROM {schema}.tasks AS t
            WHERE t.id = ANY (chosen) AND t.partition IS NOT NULL GROUP BY t.partition
        ) AS g
        WHERE slots < g.n + (
            SELECT count(*) FROM {schema}.tasks AS r WHERE r.partition = g.partition AND r.state = 'running'
        ) OR (
            SELECT t.gate FROM {schema}.tasks AS t
            WHERE t.partition = g.partition AND t.state = 'pending' AND t.gate > 1 LIMIT 1
        ) IS NOT NULL
    ) THEN
        chosen := NULL;
        RETURN;
    END IF;
    IF idle_tracks IS NOT NULL AND cardinality(missed) = 0 THEN
        DELETE FROM {schema}.turns AS t USING unnest(idle_tracks, idle_shares) AS i (track, share)
        WHERE t.track = i.track AND t.share = i.share;
    END IF;
    IF cardinality(chosen) > 0 THEN
        UPDATE {schema}.queues SET clock = starts[cardinality(starts)] WHERE name = queue_name;
        SELECT array_agg(w.share), array_agg(w.virtual_time), array_agg(w.n) INTO served, virtual_times, counts
        FROM (
            SELECT c.share, max(c.start) + coalesce(max(w.stride), usual_stride) AS virtual_time, count(*) AS n
            FROM unnest(chosen_shares, starts) AS c (share, start)
            LEFT JOIN unnest(weighted, strides) AS w (share, stride) ON w.share = c.share
            GROUP BY c.share
        ) AS w;
        -- Not an UPDATE, for which the planner may read all turns: each is found by its key, and conflicts.
        INSERT INTO {schema}.turns (track, share, virtual_time)
        SELECT f.track, w.share, w.virtual_time
        FROM unnest(fair_tracks) AS f (track) CROSS JOIN unnest(served, virtual_times) AS w (share, virtual_time)
        CROSS JOIN LATERAL (SELECT FROM {schema}.turns AS t WHERE t.track = f.track AND t.share = w.share LIMIT 1) AS t
        ON CONFLICT (track, share) DO UPDATE SET virtual_time = excluded.virtual_time;
        INSERT INTO {schema}.shares AS s (queue, share, virtual_time, pending)
        SELECT queue_name, w.share, w.virtual_time, -w.n
        FROM unnest(served, virtual_times, counts) AS w (share, virtual_time, n)
        ON CONFLICT (queue, share) DO UPDATE SET
            virtual_time = excluded.virtual_time, pending = s.pending + excluded.pending;
    ELSE
        chosen := '{}';
    END IF;
END
$$;
