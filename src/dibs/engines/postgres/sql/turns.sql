-- The shares of a queue that have pending tasks, in the order of their turns. Takes the queue, how many. Returns
-- share, tag. Reads the beginning of `turns`.
SELECT share, tag FROM dibs.shares WHERE queue = $1 AND pending > 0 ORDER BY tag, share LIMIT $2::int;
