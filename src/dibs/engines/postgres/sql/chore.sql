-- The last run of a chore. Takes its name. Returns the record (JSON).
SELECT record FROM dibs.chores WHERE name = $1;
