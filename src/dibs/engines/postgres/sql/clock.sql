-- The virtual time of a queue. Takes its name.
SELECT clock FROM dibs.queues WHERE name = $1;
