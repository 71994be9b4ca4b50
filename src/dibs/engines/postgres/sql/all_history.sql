-- Every entry of every history, a stretch at a time. Takes the task and number to begin after, how many. Returns task, n,
-- entry (JSON). Reads a range of the primary key.
SELECT task, n, entry FROM dibs.history WHERE (task, n) > ($1::uuid, $2::int) ORDER BY task, n LIMIT $3::int;
