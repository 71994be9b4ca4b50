-- Lock tasks, wherever they are, in order of id. Takes ids. Returns the columns of find.sql. In a function, because
-- each place has to be looked at with fresh eyes: a task that left one while we waited for it is in the next.
CREATE OR REPLACE FUNCTION dibs.lock_tasks(ids uuid[])
RETURNS TABLE (
    id uuid, stream int, state text, rank bigint, ready_at bigint, due_at bigint, rerank_at bigint, lease int,
    lease_expires_at bigint, started_at bigint, worker text, sequence bigint, progress bytea, finished_at bigint,
    result bytea, args bytea, facts bytea, created_at bigint
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    found int;
    total int := 0;
BEGIN
    RETURN QUERY SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
        t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts,
        t.created_at
    FROM dibs.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    total := found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
        t.args, t.facts, t.created_at
    FROM dibs.dead AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    total := total + found;
    IF total = cardinality(ids) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT
        t.id, t.stream, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
        NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
        t.args, t.facts, t.created_at
    FROM dibs.finished AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR UPDATE;
END
$$;
