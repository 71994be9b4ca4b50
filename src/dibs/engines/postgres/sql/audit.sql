-- The newest lines of the audit log. Takes how many. Returns entries (JSON).
SELECT entry FROM dibs.audit ORDER BY n DESC LIMIT $1::int;
