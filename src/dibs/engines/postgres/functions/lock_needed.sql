-- Lock tasks that new ones wait for, so that none of them ends unnoticed. Takes ids, in order. Returns id, state.
-- Each place is looked at with fresh eyes: a task that left one while we waited for it is in the next.
CREATE OR REPLACE FUNCTION dibs.lock_needed(ids uuid[]) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.id, t.state FROM dibs.tasks AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY SELECT t.id, t.state FROM dibs.dead AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY SELECT t.id, t.state FROM dibs.finished AS t WHERE t.id = ANY (ids) ORDER BY t.id FOR SHARE;
END
$$;
