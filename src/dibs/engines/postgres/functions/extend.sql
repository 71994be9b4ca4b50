-- name: extend
-- Extend leases. Takes now (NULL: the clock), ids in order, lease numbers, spans, progress (NULL: unchanged). Returns
-- id, lease, facts if the task was asked to stop, now; of those leases that are current. A locked row (a task that is
-- being completed in a user's transaction) counts as alive, and is left alone.
CREATE OR REPLACE FUNCTION {schema}.extend_{version}(
    at bigint, ids uuid[], leases int[], spans bigint[], all_progress bytea[]
)
RETURNS TABLE (id uuid, lease int, facts bytea, now bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
BEGIN
    RETURN QUERY
    WITH free AS MATERIALIZED (
        SELECT t.id FROM {schema}.tasks AS t
        WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
          AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE
        ORDER BY t.id FOR UPDATE SKIP LOCKED
    ), kept AS (
        UPDATE {schema}.tasks AS t SET
            version = t.version + 1,
            lease_expires_at = instant + u.span,
            progress = coalesce(u.progress, t.progress)
        FROM free AS f JOIN unnest(ids, spans, all_progress) AS u (id, span, progress) ON u.id = f.id
        WHERE t.id = f.id
    )
    SELECT t.id, t.lease, CASE WHEN t.cancel THEN t.facts END, instant
    FROM {schema}.tasks AS t
    WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
      AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE;
END
$$;
