-- Take back leases that were given to somebody who can't read the tasks: they are as they were before, but for the number of
-- the claim if they had been claimed before. Takes ids, leases. Seeks by id; the fence is in the statement.
WITH undone AS (
    UPDATE dibs.tasks AS t SET
        state = 'pending',
        lease = t.lease - 1,
        lease_expires_at = NULL,
        started_at = NULL,
        worker = NULL,
        sequence = CASE WHEN t.lease = 1 THEN 0 ELSE t.sequence END
    WHERE t.id = ANY ($1::uuid[]) AND t.state = 'running'
      AND ((t.id, t.lease) IN (SELECT u.id, u.lease FROM unnest($1::uuid[], $2::int[]) AS u (id, lease))) IS TRUE
    RETURNING t.stream
)
INSERT INTO dibs.deltas (what, stream, n)
SELECT w.what, c.stream, w.sign * c.n
FROM
    (SELECT u.stream, count(*) AS n FROM undone AS u GROUP BY u.stream) AS c,
    (VALUES ('pending', 1), ('running', -1), ('claimed', -1)) AS w (what, sign);
