-- The last run of a chore. Takes its name. Returns (record, cursor), or no row.
SELECT record, cursor FROM dibs_chores WHERE name = ?;
