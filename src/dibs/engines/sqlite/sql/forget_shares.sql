-- Forget shares of a queue that is deleted. Takes the queue, how many. Reads a range of the primary key.
DELETE FROM dibs_shares WHERE (queue, share) IN (SELECT queue, share FROM dibs_shares WHERE queue = ?1 LIMIT ?2);
