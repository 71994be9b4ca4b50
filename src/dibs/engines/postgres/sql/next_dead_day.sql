-- The next day that has dead tasks, from this one on. Takes the day. Returns a day. One seek in `dead_days`.
SELECT min(day) FROM dibs.dead WHERE day >= $1::int;
