-- name: enqueue
-- Store new tasks that need no decision: no key, no prerequisite, a queue that accepts everything. Takes now, the
-- generation for which the rest was computed, the first day on which one of these tasks can have ended, whether to
-- store all or none; of each task the id, its draft and its arguments; and drafts, which are what like tasks have in
-- common, counted from 1; new pairs of the index of id blocks (NULL: all are known), and the blocks of the lowest and
-- the highest id; the tracks whose events are wanted (NULL: none, 0: all). Offsets of the rank to ready_at are computed
-- by the caller: ready_at is now + delay, or the instant given. Returns the status ('stale': compute again), now, and
-- the ids that were stored (NULL: all); the others
-- are known. If one has ended, or if all or none were asked for: DB001.
CREATE OR REPLACE FUNCTION {schema}.enqueue_{version}(
    at bigint, generation_of bigint, first_day int, all_or_none boolean,
    ids uuid[], drafts int[], all_args bytea[],
    tracks int[], offsets bigint[], delays bigint[], instants bigint[], rerank_ins bigint[], lease_fors bigint[],
    all_expires_at bigint[], partitions text[], all_facts bytea[],
    traits text[], blocks bigint[], first_block bigint, last_block bigint, watched int[],
    OUT status text, OUT now bigint, OUT stored uuid[]
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    known int;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    IF (SELECT s.generation FROM {schema}.store AS s) <> generation_of THEN
        status := 'stale';
        RETURN;
    END IF;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    WITH drafts AS (
        SELECT *, greatest(coalesce(d.instant, enqueue_{version}.now + d.delay), enqueue_{version}.now) AS ready_at
        FROM unnest(
            tracks, offsets, delays, instants, rerank_ins, lease_fors, all_expires_at, partitions, all_facts
        )
            WITH ORDINALITY
            AS d (track, rank_offset, delay, instant, rerank_in, lease_for, expires_at, partition, facts, n)
    ), put AS (
        INSERT INTO {schema}.tasks (
            id, track, state, rank, ready_at, due_at, rerank_at, lease_for, expires_at, created_at, partition, args,
            facts
        )
        SELECT
            t.id, d.track, CASE WHEN d.ready_at > enqueue_{version}.now THEN 'scheduled' ELSE 'pending' END,
            d.ready_at + d.rank_offset, d.ready_at, CASE WHEN d.ready_at > enqueue_{version}.now THEN d.ready_at END,
            d.ready_at + d.rerank_in, d.lease_for, d.expires_at, enqueue_{version}.now, d.partition, t.args, d.facts
        FROM unnest(ids, enqueue_{version}.drafts, all_args) AS t (id, draft, args) JOIN drafts AS d ON d.n = t.draft
        ON CONFLICT (id) DO NOTHING
        RETURNING
            tasks.id, tasks.track, tasks.state, tasks.rank, tasks.ready_at, tasks.expires_at, tasks.partition
    ), waiting AS (
        INSERT INTO {schema}.pending (id, track, gated, share, rank, ready_at, expires_at, partition)
        SELECT p.id, p.track, false, '', p.rank, p.ready_at, p.expires_at, p.partition
        FROM put AS p WHERE p.state = 'pending'
    ), counted AS (
        INSERT INTO {schema}.count_changes (what, track, n)
        SELECT w.what, c.track, c.n
        FROM
            (SELECT p.track, p.state, count(*) AS n FROM put AS p GROUP BY p.track, p.state) AS c,
            LATERAL (VALUES (c.state), ('enqueued')) AS w (what)
    )
    SELECT array_agg(p.id) INTO stored FROM put AS p;
    -- Ended tasks are read afterwards: one that was unfinished when the statement began may have ended since.
    SELECT count(*) INTO known FROM (
        SELECT 1 FROM {schema}.dead AS d WHERE d.id = ANY (stored)
        UNION ALL
        SELECT 1 FROM {schema}.finished AS f WHERE f.id = ANY (stored) AND f.day >= first_day
    ) AS e;
    IF known > 0 OR (all_or_none AND coalesce(cardinality(stored), 0) < cardinality(ids)) THEN
        RAISE EXCEPTION 'some of these tasks are known' USING ERRCODE = 'DB001';
    END IF;
    IF traits IS NOT NULL OR first_block < now / 256000 - 4 OR last_block > now / 256000 + 4 THEN
        PERFORM {schema}.add_blocks_{version}(traits, blocks, now, ids);
    END IF;
    IF watched IS NOT NULL THEN
        PERFORM {schema}.task_events_{version}('task.submitted', now, stored, watched);
    END IF;
    IF cardinality(stored) = cardinality(ids) THEN
        stored := NULL;
    ELSE
        stored := coalesce(stored, '{}');
    END IF;
    status := 'done';
END
$$;
