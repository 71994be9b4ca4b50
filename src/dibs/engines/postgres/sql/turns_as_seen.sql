-- The shares of a queue that have pending tasks, in the order of their turns, for those who only look. Takes the
-- queue, its clock, how many. Returns share, tag (0 if the clock has passed it: these go by name). Sorts the shares
-- that wait.
SELECT share, CASE WHEN tag <= $2::bigint THEN 0 ELSE tag END AS tag
FROM dibs.shares WHERE queue = $1 AND pending > 0
ORDER BY CASE WHEN tag <= $2::bigint THEN 0 ELSE tag END, share LIMIT $3::int;
