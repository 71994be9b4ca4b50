-- Shares with pending tasks that the clock has passed, by name. Takes queue, clock, the share to begin after, 1 to begin
-- with it, how many. Returns a JSON array of (tag, share, pending). Visits shares in a range of the primary key.
SELECT json_group_array(json_array(tag, share, pending))
FROM (
    SELECT tag, share, pending FROM dibs_shares
    WHERE queue = ?1 AND share >= ?3 AND (?4 OR share > ?3) AND tag <= ?2 AND pending > 0 ORDER BY share LIMIT ?5
);
