-- Pending tasks of one stream and share in a partition. Takes partition (with the queue's name in front), stream, share,
-- rank and id to begin after, how many. Returns a JSON array as read_stream.sql does. Reads a range of dibs_partitions.
SELECT json_group_array(json_array(rank, id, ready_at, stream, partition))
FROM (
    SELECT rank, id, ready_at, stream, partition FROM dibs_tasks INDEXED BY dibs_partitions
    WHERE partition = ?1 AND state = 'pending' AND stream = ?2 AND share = ?3 AND (rank, id) > (?4, ?5)
    ORDER BY rank, id LIMIT ?6
);
