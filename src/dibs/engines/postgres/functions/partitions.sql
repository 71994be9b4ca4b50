-- name: gated_heads
-- Gated tasks to ungate. Takes keys of partitions, the highest number that may run in each (NULL: any), how many to
-- take at most of a group, ids to skip. Returns id, track, share: in each group (partition, track and share) whose best
-- pending task is gated, the first gated ones, nearly twice as many as slots are free. So where partitions are never
-- full, the tasks are ungated some at a time, and where they are, one for each slot. A seek in `gated_groups` for each
-- partition, and if it has gated tasks, a range of `partitions` that counts what runs, and a seek there for each group.
-- (Asked with EXISTS whether there are any, the planner reads all gated tasks.)
CREATE OR REPLACE FUNCTION {schema}.gated_heads_{version}(keys text[], mosts bigint[], ahead int, passed uuid[])
RETURNS TABLE (id uuid, track int, share text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE groups (partition, most, track, share) AS (
        SELECT w.partition, w.most, h.track, h.share
        FROM unnest(keys, mosts) AS w (partition, most)
        CROSS JOIN LATERAL (
            SELECT t.track, t.share FROM {schema}.tasks AS t
            WHERE t.partition = w.partition AND t.state = 'pending' AND t.gate > 1
            ORDER BY t.track, t.share LIMIT 1
        ) AS h
        UNION ALL
        SELECT last.partition, last.most, h.track, h.share
        FROM groups AS last
        CROSS JOIN LATERAL (
            SELECT t.track, t.share FROM {schema}.tasks AS t
            WHERE t.partition = last.partition AND t.state = 'pending' AND t.gate > 1
              AND (t.track, t.share) > (last.track, last.share)
            ORDER BY t.track, t.share LIMIT 1
        ) AS h
    )
    SELECT n.id, g.track, g.share
    FROM groups AS g
    CROSS JOIN LATERAL (
        SELECT t.gate FROM {schema}.tasks AS t
        WHERE t.partition = g.partition AND t.state = 'pending' AND t.track = g.track AND t.share = g.share
          AND t.id <> ALL (passed)
        ORDER BY t.rank, t.id LIMIT 1
    ) AS head
    CROSS JOIN LATERAL (
        SELECT coalesce(g.most - count(*), ahead) AS free FROM {schema}.tasks AS r
        WHERE r.partition = g.partition AND r.state = 'running' AND head.gate = 2
    ) AS load
    CROSS JOIN LATERAL (
        SELECT t.id FROM {schema}.tasks AS t
        WHERE t.partition = g.partition AND t.state = 'pending' AND t.gate > 1 AND t.track = g.track
          AND t.share = g.share AND t.id <> ALL (passed)
        ORDER BY t.partition, t.track, t.share, t.rank, t.id LIMIT greatest(0, least(2 * load.free - 1, ahead))
    ) AS n
    WHERE head.gate = 2;
END
$$;

-- name: ungate_heads
-- Ungate what `gated_heads` finds, and give it turns where tracks are fair. Takes the same, without ids to skip.
CREATE OR REPLACE FUNCTION {schema}.ungate_heads_{version}(keys text[], mosts bigint[], ahead int)
RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids uuid[];
    tracks int[];
    shares text[];
BEGIN
    SELECT array_agg(h.id), array_agg(h.track), array_agg(h.share) INTO ids, tracks, shares
    FROM {schema}.gated_heads_{version}(keys, mosts, ahead, '{}') AS h;
    IF ids IS NOT NULL THEN
        UPDATE {schema}.tasks AS t SET gate = 1 WHERE t.id = ANY (ids);
        PERFORM {schema}.add_turns_{version}(f.tracks, f.shares, f.queues)
        FROM (
            SELECT array_agg(w.track) AS tracks, array_agg(w.share) AS shares, array_agg(c.queue) AS queues
            FROM (SELECT DISTINCT * FROM unnest(tracks, shares)) AS w (track, share)
            JOIN {schema}.tracks AS c ON c.track = w.track AND c.fair
        ) AS f;
    END IF;
END
$$;
