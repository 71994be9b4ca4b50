-- What every write begins with. Takes now (NULL: the clock), whether queues are about to change, for how many
-- milliseconds we may be silent (NULL: as the session has it). Returns generation, now.
SELECT * FROM dibs.begin($1, $2, $3);
