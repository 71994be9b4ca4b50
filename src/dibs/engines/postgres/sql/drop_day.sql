-- Drop the tasks that ended on a day, all at once. Takes the day.
SELECT dibs.drop_day($1::int);
