-- What comes after a task in its partition, of the same stream and share, gated or not. Takes partition, stream,
-- share, rank, id, how many. Returns rank, id, ready_at, stream, partition. Reads a range of `partitions`.
SELECT t.rank, t.id, t.ready_at, t.stream, t.partition FROM dibs.tasks AS t
WHERE t.partition = $1 AND t.state = 'pending' AND t.stream = $2::int AND t.share = $3
  AND (t.rank, t.id) > ($4::bigint, $5::uuid)
ORDER BY t.rank, t.id LIMIT $6::int;
