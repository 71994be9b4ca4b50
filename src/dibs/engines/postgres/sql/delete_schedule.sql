-- Forget a schedule. Takes its name.
DELETE FROM dibs.schedules WHERE name = $1;
