-- name: extend
-- Extend leases. Takes now (NULL: the clock), ids in order, lease numbers, spans, progress (NULL: unchanged). Returns
-- id, lease, facts if the task was asked to stop, now; of those leases that are current. Where all that runs of a batch is
-- extended by one span, its row in `leases` is written; otherwise, and for progress, the task's row in `running`. A locked row
-- (a task that is being completed in a user's transaction, a batch that is being rescued) counts as alive, and is left alone.
-- What is current is read afterwards: what was taken back in between is not.
CREATE OR REPLACE FUNCTION {schema}.extend_{version}(
    at bigint, ids uuid[], leases int[], spans bigint[], all_progress bytea[]
)
RETURNS TABLE (id uuid, lease int, facts bytea, now bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT r.id, r.batch, r.expires_at, u.span, u.progress
        FROM {schema}.running AS r JOIN unnest(ids, leases, spans, all_progress) AS u (id, lease, span, progress)
            ON u.id = r.id AND u.lease = r.lease
        WHERE r.id = ANY (ids)
    ), whole AS MATERIALIZED (
        SELECT a.batch, min(a.span) AS span FROM asked AS a GROUP BY a.batch
        HAVING min(a.span) = max(a.span) AND count(*) = (
            SELECT count(*) FROM (
                SELECT 1 FROM {schema}.running AS r
                WHERE r.id = ANY ((SELECT l.ids FROM {schema}.leases AS l WHERE l.batch = a.batch)::uuid[])
                  AND r.batch = a.batch
                LIMIT cardinality(ids) + 1
            ) AS several
        )
    ), free AS MATERIALIZED (
        SELECT l.batch FROM {schema}.leases AS l
        WHERE l.batch = ANY (ARRAY(SELECT w.batch FROM whole AS w)) ORDER BY l.batch FOR UPDATE SKIP LOCKED
    ), kept AS (
        UPDATE {schema}.leases AS l SET expires_at = instant + (SELECT w.span FROM whole AS w WHERE w.batch = l.batch)
        WHERE l.batch = ANY (ARRAY(SELECT f.batch FROM free AS f))
    ), own AS MATERIALIZED (
        SELECT a.id, a.span, a.progress, f.batch IS NULL AS is_alone
        FROM asked AS a LEFT JOIN free AS f ON f.batch = a.batch
        WHERE f.batch IS NULL OR a.progress IS NOT NULL OR a.expires_at IS NOT NULL
    ), held AS MATERIALIZED (
        SELECT r.id FROM {schema}.running AS r
        WHERE r.id = ANY (ARRAY(SELECT o.id FROM own AS o))
          AND ((r.id, r.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE
        ORDER BY r.id FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.running AS r SET
        version = r.version + 1,
        expires_at = CASE WHEN o.is_alone THEN instant + o.span END,
        progress = coalesce(o.progress, r.progress)
    FROM own AS o WHERE r.id = ANY (ARRAY(SELECT h.id FROM held AS h)) AND o.id = r.id;
    RETURN QUERY
    SELECT
        r.id, r.lease, CASE WHEN r.cancel THEN (SELECT t.facts FROM {schema}.tasks AS t WHERE t.id = r.id) END, instant
    FROM {schema}.running AS r
    WHERE r.id = ANY (ids)
      AND ((r.id, r.lease) IN (SELECT u.id, u.lease FROM unnest(ids, leases) AS u (id, lease))) IS TRUE;
END
$$;
