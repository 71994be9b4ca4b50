-- Tasks by id, wherever they are. Takes ids. Returns the columns that every statement about tasks gives. Seeks by id,
-- in each day of finished tasks.
CREATE OR REPLACE FUNCTION dibs.find_tasks(ids uuid[])
RETURNS TABLE (
    id uuid, stream int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, progress bytea, finished_at bigint,
    result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
        t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts,
        t.created_at
    FROM dibs.tasks AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
        t.args, t.facts, t.created_at
    FROM dibs.dead AS t WHERE t.id = ANY (ids)
    UNION ALL
    SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
        t.args, t.facts, t.created_at
    FROM dibs.finished AS t WHERE t.id = ANY (ids);
END
$$;
