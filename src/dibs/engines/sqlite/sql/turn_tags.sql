-- The turns of a stream, in order, for when their best tasks have to be looked at one by one (read_turns.sql). Takes
-- stream, tag and share to begin after, how many. Returns a JSON array of (tag, share). A range of dibs_turn_order.
SELECT json_group_array(json_array(tag, share))
FROM (
    SELECT tag, share FROM dibs_turns INDEXED BY dibs_turn_order
    WHERE stream = ?1 AND (tag, share) > (?2, ?3) ORDER BY tag, share LIMIT ?4
);
