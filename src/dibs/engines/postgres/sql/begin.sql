-- What every write begins with. Takes now (NULL: the clock), whether queues are about to change. Returns generation,
-- now.
SELECT * FROM dibs.begin($1, $2);
