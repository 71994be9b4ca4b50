-- Shares that have something for claims. Takes a JSON array of (stream, share, queue). The tag is the share's own, or 0
-- if the clock has passed it.
INSERT INTO dibs_turns (stream, share, tag)
SELECT
    value ->> 0, value ->> 1,
    coalesce((
        SELECT s.tag FROM dibs_shares AS s CROSS JOIN dibs_queues AS q
        WHERE s.queue = value ->> 2 AND s.share = value ->> 1 AND q.name = s.queue AND s.tag > q.clock
    ), 0)
FROM json_each(?) WHERE true
ON CONFLICT (stream, share) DO UPDATE SET tag = excluded.tag WHERE tag <> excluded.tag;
