-- What is left to be followed up, oldest first. Takes how many. Returns n, errand (JSON).
SELECT n, errand FROM dibs.errands ORDER BY n LIMIT $1::int;
