-- One schedule. Takes its name. Returns the record (JSON), or no row.
SELECT record FROM dibs_schedules WHERE name = ?;
