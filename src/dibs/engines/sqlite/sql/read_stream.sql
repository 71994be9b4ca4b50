-- A stretch of one stream in claim order. Takes stream, rank and id to begin after, how many.
-- Returns a JSON array of (rank, id, ready_at, stream). Reads a range of dibs_pending, already in order.
SELECT json_group_array(json_array(rank, id, ready_at, stream))
FROM (
    SELECT rank, id, ready_at, stream FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND stream = ?1 AND (rank, id) > (?2, ?3)
    ORDER BY rank, id LIMIT ?4
);
