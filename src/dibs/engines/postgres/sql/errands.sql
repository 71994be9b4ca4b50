-- What is left to be followed up, oldest first, but for what others are at. Takes how many, numbers to
-- pass over. Returns n, errand (JSON).
SELECT n, errand FROM dibs.errands WHERE (n IN (SELECT unnest($2::bigint[]))) IS NOT TRUE
ORDER BY n LIMIT $1 FOR UPDATE SKIP LOCKED;
