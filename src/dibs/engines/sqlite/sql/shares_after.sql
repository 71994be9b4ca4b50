-- Shares of all queues, in order. Takes queue and share to begin after, how many. Returns a JSON array of (queue, share,
-- 1 if nothing is pending and the clock has passed its tag). Reads a range of the primary key.
SELECT json_group_array(json_array(
    queue, share,
    pending = 0 AND tag <= coalesce((SELECT clock FROM dibs_queues WHERE name = queue), tag)
))
FROM (SELECT * FROM dibs_shares WHERE (queue, share) > (?1, ?2) ORDER BY queue, share LIMIT ?3);
