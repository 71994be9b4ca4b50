-- name: extend
-- Extend leases. Takes now (NULL: the clock), ids in order, lease numbers, spans, progress (NULL: unchanged). Returns
-- id, lease, facts if the task was asked to stop, now; of those leases that are current. A locked row (a task that is
-- being completed in a user's transaction) counts as alive, and is left alone.
--
-- Tasks whose leases are extended together by the same span are a batch from then on: one row says when their leases end,
-- and the next time only that is written. A batch is extended if half of it or more is asked for: the others leave it, with
-- the end that they had, except those that are locked. Else those that are asked for leave it, for a new one, as if they had
-- been in none. The batches are locked before their tasks are read: what `expired` has taken back is not current any more.
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
    kept bigint[];
    kept_spans bigint[];
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
        ), extended AS (
            SELECT h.batch, min(u.span) AS span
            FROM held AS h JOIN unnest(ids, spans) AS u (id, span) ON u.id = h.id
            GROUP BY h.batch
            HAVING min(u.span) = max(u.span) AND count(*) >= smallest
               AND 2 * count(*) >= (SELECT count(*) FROM {schema}.tasks AS m WHERE m.batch = h.batch)
        )
        SELECT array_agg(e.batch), array_agg(e.span) INTO kept, kept_spans FROM extended AS e;
        WITH leaving AS MATERIALIZED (
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.batch = ANY (kept)
              AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, numbers) AS u (id, lease))) IS NOT TRUE
            ORDER BY t.id FOR UPDATE SKIP LOCKED
        )
        UPDATE {schema}.tasks AS t SET
            version = t.version + 1,
            batch = NULL,
            lease_expires_at = (SELECT b.expires_at FROM {schema}.batches AS b WHERE b.batch = t.batch)
        FROM leaving AS l WHERE t.id = l.id;
        UPDATE {schema}.batches AS b SET expires_at = instant + k.span
        FROM unnest(kept, kept_spans) AS k (batch, span) WHERE b.batch = k.batch;
    END IF;
    FOR span_of IN SELECT DISTINCT s FROM unnest(spans) AS s LOOP
        moving := ARRAY(
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
              AND (t.batch = ANY (kept)) IS NOT TRUE
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
    IF kept IS NOT NULL AND num_nonnulls(VARIADIC all_progress) > 0 THEN
        WITH reporting AS MATERIALIZED (
            SELECT t.id FROM {schema}.tasks AS t
            WHERE t.id = ANY (ids) AND t.batch = ANY (kept)
              AND ((t.id, t.lease) IN (
                  SELECT u.id, u.lease FROM unnest(ids, numbers, all_progress) AS u (id, lease, progress)
                  WHERE u.progress IS NOT NULL
              )) IS TRUE
            ORDER BY t.id FOR UPDATE SKIP LOCKED
        )
        UPDATE {schema}.tasks AS t SET version = t.version + 1, progress = u.progress
        FROM reporting AS r JOIN unnest(ids, all_progress) AS u (id, progress) ON u.id = r.id
        WHERE t.id = r.id;
    END IF;
    RETURN QUERY
    SELECT t.id, t.lease, CASE WHEN t.cancel THEN t.facts END, instant
    FROM {schema}.tasks AS t
    WHERE t.id = ANY (ids) AND t.lease_expires_at IS NOT NULL
      AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest(ids, numbers) AS u (id, lease))) IS TRUE;
END
$$;
