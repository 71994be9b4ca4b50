-- name: first_turns
-- The first turns of tracks. Takes tracks, the clock of their queue, limit for each. Returns track, virtual time, share.
-- Orders the turns that the clock has passed by name first, unless they are so because all have the same virtual time: a
-- range of `turn_order` each. Then reads the beginning of such a range.
CREATE OR REPLACE FUNCTION {schema}.first_turns_{version}(tracks int[], clock bigint, most int)
RETURNS TABLE (track int, virtual_time bigint, share text)
-- Whatever the planner estimates for a table that fills and empties all the time, it may only use the indexes.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    UPDATE {schema}.turns SET virtual_time = 0
    WHERE track = ANY (ARRAY(
        SELECT s.track FROM unnest(tracks) AS s (track)
        WHERE (
            SELECT t.virtual_time FROM {schema}.turns AS t
            WHERE t.track = s.track ORDER BY t.track, t.virtual_time LIMIT 1
        ) < (
            SELECT t.virtual_time FROM {schema}.turns AS t
            WHERE t.track = s.track AND t.virtual_time <= clock ORDER BY t.track DESC, t.virtual_time DESC LIMIT 1
        )
    )) AND virtual_time > 0 AND virtual_time <= clock;
    RETURN QUERY
    SELECT s.track, h.virtual_time, h.share
    FROM unnest(tracks) AS s (track)
    CROSS JOIN LATERAL (
        SELECT t.virtual_time, t.share FROM {schema}.turns AS t
        WHERE t.track = s.track ORDER BY t.track, t.virtual_time, t.share LIMIT most
    ) AS h;
END
$$;

-- name: add_turns
-- Add turns of shares that have tasks for claims. Takes tracks, shares, queues. The virtual time is the share's own, or
-- 0 if the clock has passed it.
CREATE OR REPLACE FUNCTION {schema}.add_turns_{version}(tracks int[], shares text[], queues text[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO {schema}.turns AS t (track, share, virtual_time)
    SELECT
        w.track, w.share,
        coalesce((
            SELECT s.virtual_time FROM {schema}.shares AS s JOIN {schema}.queues AS q ON q.name = s.queue
            WHERE s.queue = w.queue AND s.share = w.share AND s.virtual_time > q.clock
        ), 0)
    FROM unnest(tracks, shares, queues) AS w (track, share, queue)
    ON CONFLICT (track, share) DO UPDATE SET virtual_time = excluded.virtual_time
    WHERE t.virtual_time <> excluded.virtual_time;
END
$$;
