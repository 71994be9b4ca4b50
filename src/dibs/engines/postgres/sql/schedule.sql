-- One schedule, locked. Takes its name. Returns the record (JSON).
SELECT record FROM dibs.schedules WHERE name = $1 FOR UPDATE;
