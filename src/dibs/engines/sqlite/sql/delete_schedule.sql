-- Delete a schedule. Takes its name.
DELETE FROM dibs_schedules WHERE name = ?;
