-- name: extend
-- Extend leases. Takes now (NULL: the clock), ids in order, lease numbers, spans, progress (NULL: unchanged). Returns
-- id, lease, facts if the task was asked to stop, now; of those leases that are current. A locked row (a task that is
-- being completed in a user's transaction) counts as alive, and is left alone.
--
-- Tasks whose leases are extended together by the same span are a batch from then on: one row says when their leases end,
-- and the next time only that is written. A batch is extended if all that is left of it is asked for; what is left of
-- others, or of small ones, leaves them for a new one. The batches are locked before their tasks are read: what `expired`
-- has taken back meanwhile is not current any more.
CREATE OR REPLACE FUNCTION {schema}.extend_{version}(
    at bigint, ids uuid[], numbers int[], spans bigint[], all_progress bytea[]
)
RETURNS TABLE (id uuid, lease int, facts bytea, now bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    instant bigint := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    smallest int := 4;  -- fewer write rows of their own
    batches bigint[] := ARRAY(
        SELECT DISTINCT t.batch FROM {schema}.tasks AS t WHERE t.id = ANY (ids) AND t.batch IS NOT NULL
    );
    wholes bigint[];
    moving uuid[];
    joined bigint;
    span_of bigint;
BEGIN
    IF cardinality(batches) > 0 THEN
        PERFORM FROM {schema}.batches AS b WHERE b.batch = ANY (batches) ORDER BY b.batch FOR UPDATE;
        WITH held AS MATERIALIZED (
            SELECT t.id, t.batch FROM {schema}.tasks AS t
            WHERE t.id = ANY (ids) AND t.batch IS NOT NULL
              AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, numbers) AS u (id, lease))) IS TRUE
        ), whole AS MATERIALIZED (
            SELECT h.batch, min(u.span) AS span
            FROM held AS h JOIN unnest(ids, spans) AS u (id, span) ON u.id = h.id
            GROUP BY h.batch
            HAVING min(u.span) = max(u.span) AND count(*) >= smallest
               AND count(*) = (SELECT count(*) FROM {schema}.tasks AS m WHERE m.batch = h.batch)
        ), extended AS (
            UPDATE {schema}.batches AS b SET expires_at = instant + w.span FROM whole AS w WHERE b.batch = w.batch
        )
        SELECT array_agg(w.batch) INTO wholes FROM whole AS w;
    END IF;
    FOR span_of IN SELECT DISTINCT s FROM unnest(spans) AS s LOOP
        moving := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
              AND (t.batch = ANY (wholes)) IS NOT TRUE
              AND ((t.id, t.lease, span_of) IN (
                  SELECT u.id, u.lease, u.span FROM unnest(ids, numbers, spans) AS u (id, lease, span)
              )) IS TRUE
            ORDER BY t.id FOR UPDATE SKIP LOCKED
        );
        CONTINUE WHEN cardinality(moving) = 0;
        joined := NULL;
        IF cardinality(moving) >= smallest THEN
            INSERT INTO {schema}.batches AS b (expires_at) VALUES (instant + span_of) RETURNING b.batch INTO joined;
        END IF;
        UPDATE {schema}.tasks AS t SET
            version = t.version + 1,
            batch = joined,
            lease_expires_at = CASE WHEN joined IS NULL THEN instant + span_of ELSE 4611686018427387904 END,
            progress = coalesce(u.progress, t.progress)
        FROM unnest(moving) AS m (id) JOIN unnest(ids, all_progress) AS u (id, progress) ON u.id = m.id
        WHERE t.id = m.id;
    END LOOP;
    IF wholes IS NOT NULL AND num_nonnulls(VARIADIC all_progress) > 0 THEN
        UPDATE {schema}.tasks AS t SET version = t.version + 1, progress = u.progress
        FROM unnest(ids, numbers, all_progress) AS u (id, lease, progress)
        WHERE t.id = u.id AND t.lease = u.lease AND t.batch = ANY (wholes) AND u.progress IS NOT NULL;
    END IF;
    RETURN QUERY
    SELECT t.id, t.lease, CASE WHEN t.cancel THEN t.facts END, instant
    FROM {schema}.tasks AS t
    WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
      AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, numbers) AS u (id, lease))) IS TRUE;
END
$$;
