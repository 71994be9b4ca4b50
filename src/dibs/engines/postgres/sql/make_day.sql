-- A partition for the tasks that end on a day. Takes the day.
SELECT dibs.make_day($1::int);
