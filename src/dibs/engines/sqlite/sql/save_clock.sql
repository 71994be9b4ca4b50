-- The virtual time of a queue. Takes the clock and the queue.
UPDATE dibs_queues SET clock = ?1 WHERE name = ?2;
