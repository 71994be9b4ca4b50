-- name: enqueue_one
-- `enqueue` of a single task, the most frequent call: with plain values and statements that cost half as much. Takes
-- new traits of its block of ids (NULL: all are known) instead of pairs. Returns the status ('stale': compute again;
-- 'known': not stored, because the task exists) and now.
CREATE OR REPLACE FUNCTION {schema}.enqueue_one_{version}(
    at bigint, generation_of bigint, first_day int, task uuid, task_args bytea,
    task_track int, rank_offset bigint, delay bigint, instant bigint, rerank_in bigint, task_lease_for bigint,
    task_expires_at bigint, task_partition text, task_facts bytea,
    traits text[], task_block bigint, watched int[],
    OUT status text, OUT now bigint
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ready bigint;
    is_later boolean;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    IF (SELECT s.generation FROM {schema}.store AS s) <> generation_of THEN
        status := 'stale';
        RETURN;
    END IF;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    ready := greatest(coalesce(instant, now + delay), now);
    is_later := ready > now;
    INSERT INTO {schema}.tasks (
        id, track, state, rank, ready_at, due_at, rerank_at, lease_for, expires_at, created_at, partition, args, facts
    )
    VALUES (
        task, task_track, CASE WHEN is_later THEN 'scheduled' ELSE 'pending' END, ready + rank_offset, ready,
        CASE WHEN is_later THEN ready END, ready + rerank_in, task_lease_for, task_expires_at, now, task_partition,
        task_args, task_facts
    )
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        status := 'known';
        RETURN;
    END IF;
    -- Ended tasks are read afterwards: one that was unfinished when the statement began may have ended since.
    IF EXISTS (SELECT 1 FROM {schema}.dead AS d WHERE d.id = task) OR EXISTS (
        SELECT 1 FROM {schema}.finished AS f WHERE f.id = task AND f.day >= first_day
    ) THEN
        DELETE FROM {schema}.tasks AS t WHERE t.id = task;
        status := 'known';
        RETURN;
    END IF;
    IF NOT is_later THEN
        INSERT INTO {schema}.pending (id, track, gated, share, rank, ready_at, expires_at, partition)
        VALUES (task, task_track, false, '', ready + rank_offset, ready, task_expires_at, task_partition);
    END IF;
    INSERT INTO {schema}.count_changes (what, track, n)
    VALUES (CASE WHEN is_later THEN 'scheduled' ELSE 'pending' END, task_track, 1), ('enqueued', task_track, 1);
    IF traits IS NOT NULL OR abs(task_block - now / 256000) > 4 THEN
        PERFORM {schema}.add_blocks_{version}(
            traits, array_fill(task_block, ARRAY[coalesce(cardinality(traits), 0)]), now, ARRAY[task]
        );
    END IF;
    IF watched IS NOT NULL THEN
        PERFORM {schema}.task_events_{version}('task.submitted', now, ARRAY[task], watched);
    END IF;
    status := 'done';
END
$$;
