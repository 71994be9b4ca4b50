-- Tasks whose time has come become pending. Takes now, how many, the instant to look from. Only tasks whose moves
-- concern nobody else. Returns how many. Reads a range of `due`; those that others are moving are theirs.
CREATE OR REPLACE FUNCTION dibs.promote(instant bigint, most int, looks_from bigint) RETURNS int
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids uuid[];
BEGIN
    WITH found AS MATERIALIZED (
        SELECT t.id, t.stream, t.state FROM dibs.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.due_at >= looks_from AND t.due_at <= instant AND t.gate = 0
          AND t.state IN ('scheduled', 'retrying')
        ORDER BY t.due_at, t.id LIMIT most FOR UPDATE SKIP LOCKED
    ), counted AS (
        INSERT INTO dibs.deltas (what, stream, n)
        SELECT w.what, f.stream, w.sign * count(*)
        FROM found AS f, LATERAL (VALUES (f.state, -1), ('pending', 1)) AS w (what, sign)
        GROUP BY w.what, w.sign, f.stream
    )
    SELECT array_agg(f.id) INTO ids FROM found AS f;
    UPDATE dibs.tasks SET state = 'pending', due_at = NULL WHERE id = ANY (ids);
    RETURN coalesce(cardinality(ids), 0);
END
$$;
