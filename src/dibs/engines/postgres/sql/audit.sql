-- The newest lines of the audit log. Takes how many. Returns n, entry (JSON).
SELECT n, entry FROM dibs.audit ORDER BY n DESC LIMIT $1::int;
