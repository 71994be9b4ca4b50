-- Pending tasks whose lease number or lease span is so large that no claim can lease them: damaged rows. Takes the
-- longest span, how many. Returns ids. Reads all pending tasks: asked only after a claim has failed because of one.
SELECT t.id FROM dibs.tasks AS t
WHERE t.state = 'pending' AND (t.lease = 2147483647 OR t.lease_for NOT BETWEEN 0 AND $1::bigint)
LIMIT $2::int;
