-- The virtual time of a fair queue has gone on. Takes its name, the clock.
UPDATE dibs.queues SET clock = $2 WHERE name = $1;
