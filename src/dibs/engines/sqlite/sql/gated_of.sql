-- Some gated tasks of a stream. Takes the stream, how many. Returns a JSON array of (id, stream, share). Reads a range of
-- dibs_pending.
SELECT json_group_array(json_array(id, stream, share))
FROM (
    SELECT id, stream, share FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND stream = ?1 AND gated = 1 LIMIT ?2
);
