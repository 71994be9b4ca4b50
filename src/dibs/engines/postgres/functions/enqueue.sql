-- Store new tasks that nothing can stand in the way of: no key, no prerequisite, a queue that takes everything. Takes
-- now, the generation for which the rest was worked out, the first day on which one of these tasks can have ended,
-- whether all or none are to be stored, and columns. Offsets of the rank to ready_at are worked out before: ready_at
-- is now + delay, or the instant given. Returns the status ('stale': work it out again), now, and the ids that were
-- stored; those that were not are known. If one has ended, or all or none were asked for: DB001.
CREATE OR REPLACE FUNCTION dibs.enqueue(
    at bigint, generation_of bigint, first_day int, all_or_none boolean,
    ids uuid[], streams int[], offsets bigint[], delays bigint[], instants bigint[], rerank_ins bigint[],
    lease_fors bigint[], all_expires_at bigint[], partitions text[], all_args bytea[], all_facts bytea[],
    OUT status text, OUT now bigint, OUT stored uuid[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    known int;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('dibs.queues', 0));
    IF (SELECT s.generation FROM dibs.store AS s) <> generation_of THEN
        status := 'stale';
        RETURN;
    END IF;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    WITH new AS (
        SELECT *, greatest(coalesce(n.instant, enqueue.now + n.delay), enqueue.now) AS ready_at
        FROM unnest(
            ids, streams, offsets, delays, instants, rerank_ins, lease_fors, all_expires_at, partitions,
            all_args, all_facts
        )
            AS n (id, stream, rank_offset, delay, instant, rerank_in, lease_for, expires_at, partition, args, facts)
    ), put AS (
        INSERT INTO dibs.tasks (
            id, stream, state, rank, ready_at, due_at, rerank_at, lease_for, expires_at, created_at, partition, args,
            facts
        )
        SELECT
            n.id, n.stream, CASE WHEN n.ready_at > enqueue.now THEN 'scheduled' ELSE 'pending' END,
            n.ready_at + n.rank_offset, n.ready_at, CASE WHEN n.ready_at > enqueue.now THEN n.ready_at END,
            n.ready_at + n.rerank_in, n.lease_for, n.expires_at, enqueue.now, n.partition, n.args, n.facts
        FROM new AS n
        ON CONFLICT (id) DO NOTHING
        RETURNING tasks.id, tasks.stream, tasks.state
    ), counted AS (
        INSERT INTO dibs.deltas (what, stream, n)
        SELECT w.what, p.stream, count(*) FROM put AS p, LATERAL (VALUES (p.state), ('enqueued')) AS w (what)
        GROUP BY w.what, p.stream
    )
    SELECT array_agg(p.id) INTO stored FROM put AS p;
    -- Ended tasks are looked for afterwards: one that was unfinished when the statement began may have ended meanwhile.
    SELECT count(*) INTO known FROM (
        SELECT 1 FROM dibs.dead AS d WHERE d.id = ANY (stored)
        UNION ALL
        SELECT 1 FROM dibs.finished AS f WHERE f.id = ANY (stored) AND f.day >= first_day
    ) AS e;
    IF known > 0 OR (all_or_none AND coalesce(cardinality(stored), 0) < cardinality(ids)) THEN
        RAISE EXCEPTION 'some of these tasks are known' USING ERRCODE = 'DB001';
    END IF;
    status := 'done';
END
$$;
