-- A stretch of one share of a stream in claim order. Takes stream, gated, share, rank and id to begin after, how many.
-- Returns a JSON array of (rank, id, ready_at, stream, partition). Reads a range of dibs_pending, already in order.
SELECT json_group_array(json_array(rank, id, ready_at, stream, partition))
FROM (
    SELECT rank, id, ready_at, stream, partition FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND stream = ?1 AND gated = ?2 AND share = ?3 AND (rank, id) > (?4, ?5)
    ORDER BY rank, id LIMIT ?6
);
