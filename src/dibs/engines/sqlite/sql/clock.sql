-- The virtual time of a queue, and the tag of the share without a name. Takes the queue. Returns (clock, tag), or no row.
SELECT clock, coalesce((SELECT tag FROM dibs_shares WHERE queue = ?1 AND share = ''), 0) FROM dibs_queues WHERE name = ?1;
