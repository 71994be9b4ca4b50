-- Shares with pending tasks by their tags. Takes queue, tag and share to begin after, how many. Returns a JSON array of
-- (tag, share, pending). Reads a range of dibs_share_tags.
SELECT json_group_array(json_array(tag, share, pending))
FROM (
    SELECT tag, share, pending FROM dibs_shares INDEXED BY dibs_share_tags
    WHERE queue = ?1 AND pending > 0 AND (tag, share) > (?2, ?3) ORDER BY tag, share LIMIT ?4
);
