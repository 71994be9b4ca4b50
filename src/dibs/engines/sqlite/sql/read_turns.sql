-- The turns of a stream, in order, with the best task of each. Takes stream, tag and share to begin after, how many.
-- Returns a JSON array of (tag, share, head as in read_stream.sql or NULL). A range of dibs_turn_order, one seek each.
SELECT json_group_array(json_array(tag, share, json(head)))
FROM (
    SELECT turn.tag, turn.share, (
        SELECT json_array(t.rank, t.id, t.ready_at, t.stream, t.partition)
        FROM dibs_tasks AS t INDEXED BY dibs_pending
        WHERE t.state = 'pending' AND t.stream = ?1 AND t.gated = 0 AND t.share = turn.share
        ORDER BY t.rank, t.id LIMIT 1
    ) AS head
    FROM dibs_turns AS turn INDEXED BY dibs_turn_order
    WHERE turn.stream = ?1 AND (turn.tag, turn.share) > (?2, ?3) ORDER BY turn.tag, turn.share LIMIT ?4
);
