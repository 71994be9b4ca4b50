-- Lease the most urgent tasks of queues that have no limits and no shares, in one step. Takes now, the generation,
-- worker, sequence, lease (NULL: each task's own), how many, and streams with the order of their queue, lane, scale
-- and the rank to begin at; whether queues are served strictly in turn; whether all that must be done first has been
-- done. Returns the tasks in the order they are given, and a last row with the status, now and when the next task
-- falls due or expires, how long the search took: 'stale' (refresh, and repeat), 'care' (something must be done first
-- that only the longer way does), 'done'.
--
-- Reads `pending` from the head of each stream. A single stream is read and locked in one go. Several are merged
-- before anything is locked: locking all candidates would hide them from others. The merge is by the running maximum
-- of the heads' keys, which is what merging sorted lanes by their heads comes to; ids that others hold are passed
-- over.
CREATE OR REPLACE FUNCTION dibs.claim(
    at bigint, generation_of bigint, worker_id text, sequence_number bigint, lease_span bigint, wanted int,
    streams int[], orders int[], lanes int[], scales bigint[], lows bigint[], in_order boolean,
    careless boolean
)
RETURNS TABLE (
    status text, now bigint, next_at bigint, id uuid, stream int, lease int, lease_expires_at bigint, ready_at bigint,
    rank bigint, args bytea, facts bytea, took bigint
)
-- Whatever the planner believes about a table that fills and empties all the time, it may only use the indexes.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    due bigint;
    expiry bigint;
    chosen uuid[];
    picked uuid[];
    missed uuid[] := '{}';
    held uuid[];
    tries int := 0;
    began_at timestamptz;
    found_at timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('dibs.queues', 0));
    SELECT min(t.due_at) INTO due FROM dibs.tasks AS t WHERE t.due_at IS NOT NULL;
    SELECT min(t.expires_at) INTO expiry FROM dibs.tasks AS t WHERE t.expires_at IS NOT NULL AND t.state <> 'running';
    IF (SELECT s.generation FROM dibs.store AS s) <> generation_of THEN
        RETURN QUERY SELECT
            'stale', instant, NULL::bigint, NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL::bytea,
            0::bigint;
        RETURN;
    END IF;
    IF NOT careless AND (expiry <= instant OR EXISTS (SELECT 1 FROM dibs.errands) OR EXISTS (
        SELECT 1 FROM dibs.tasks AS t WHERE t.due_at IS NOT NULL AND t.due_at <= instant AND t.gate > 0
    )) THEN
        RETURN QUERY SELECT
            'care', instant, NULL::bigint, NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL::bytea,
            0::bigint;
        RETURN;
    END IF;
    IF due <= instant THEN
        PERFORM dibs.promote(instant, 1000);
        SELECT min(t.due_at) INTO due FROM dibs.tasks AS t WHERE t.due_at IS NOT NULL;
    END IF;
    began_at := clock_timestamp();
    IF cardinality(streams) = 0 OR wanted <= 0 THEN
        chosen := '{}';
    ELSIF cardinality(streams) = 1 THEN
        chosen := ARRAY(
            SELECT t.id FROM dibs.tasks AS t
            WHERE t.stream = streams[1] AND t.share = '' AND t.rank >= lows[1] AND t.state = 'pending' AND t.gate < 2
            ORDER BY t.stream, t.share, t.rank, t.id LIMIT wanted FOR UPDATE SKIP LOCKED
        );
    ELSE
        chosen := '{}';
        WHILE cardinality(chosen) < wanted AND tries < 5 LOOP
            tries := tries + 1;
            picked := ARRAY(
                SELECT m.id
                FROM (
                    SELECT
                        h.id, h.rank,
                        max(CASE WHEN in_order THEN ARRAY[h.position::float8] ELSE '{}' END || ARRAY[
                            -least((instant - h.rank)::float8 / h.scale::float8, 100), h.ready_at::float8,
                            h.position::float8, h.lane::float8
                        ]) OVER (PARTITION BY h.position, h.lane ORDER BY h.rank, h.id) AS key
                    FROM (
                        SELECT s.position, s.lane, s.scale, c.id, c.rank, c.ready_at
                        FROM unnest(streams, orders, lanes, scales, lows) AS s (stream, position, lane, scale, low)
                        CROSS JOIN LATERAL (
                            SELECT t.id, t.rank, t.ready_at FROM dibs.tasks AS t
                            WHERE t.stream = s.stream AND t.share = '' AND t.rank >= s.low AND t.state = 'pending'
                              AND t.gate < 2
                            ORDER BY t.stream, t.share, t.rank, t.id
                            LIMIT wanted + cardinality(missed)
                        ) AS c
                    ) AS h
                    WHERE h.id <> ALL (missed) AND h.id <> ALL (chosen)
                ) AS m
                ORDER BY m.key, m.rank, m.id LIMIT wanted - cardinality(chosen)
            );
            EXIT WHEN cardinality(picked) = 0;
            held := ARRAY(
                SELECT t.id FROM dibs.tasks AS t
                WHERE t.id = ANY (picked) AND t.state = 'pending' ORDER BY t.id FOR UPDATE SKIP LOCKED
            );
            IF cardinality(held) = cardinality(picked) THEN
                chosen := chosen || picked;
            ELSE
                chosen := chosen || ARRAY(
                    SELECT u.p FROM unnest(picked) WITH ORDINALITY AS u (p, k) WHERE u.p = ANY (held) ORDER BY u.k
                );
                missed := missed || ARRAY(SELECT p FROM unnest(picked) AS p WHERE p <> ALL (held));
            END IF;
        END LOOP;
    END IF;
    found_at := clock_timestamp();
    IF cardinality(chosen) > 0 THEN
        RETURN QUERY
        WITH given AS (
            UPDATE dibs.tasks AS t SET
                state = 'running',
                lease = t.lease + 1,
                lease_expires_at = instant + coalesce(lease_span, t.lease_for),
                started_at = instant,
                worker = worker_id,
                sequence = sequence_number,
                progress = NULL
            WHERE t.id = ANY (chosen)
            RETURNING t.id, t.stream, t.lease, t.lease_expires_at, t.ready_at, t.rank, t.args, t.facts
        ), counted AS (
            INSERT INTO dibs.deltas (what, stream, n)
            SELECT w.what, g.stream, w.sign * count(*)
            FROM given AS g, (VALUES ('pending', -1), ('running', 1), ('claimed', 1)) AS w (what, sign)
            GROUP BY w.what, w.sign, g.stream
        )
        SELECT NULL::text, NULL::bigint, NULL::bigint, g.*, NULL::bigint
        FROM given AS g JOIN unnest(chosen) WITH ORDINALITY AS c (id, k) ON c.id = g.id ORDER BY c.k;
        IF expiry IS NOT NULL THEN
            SELECT min(t.expires_at) INTO expiry FROM dibs.tasks AS t
            WHERE t.expires_at IS NOT NULL AND t.state <> 'running';
        END IF;
    END IF;
    RETURN QUERY SELECT
        'done', instant, least(due, expiry), NULL::uuid, 0, 0, 0::bigint, 0::bigint, 0::bigint, NULL::bytea,
        NULL::bytea, (extract(epoch FROM found_at - began_at) * 1000000)::bigint;
END
$$;
