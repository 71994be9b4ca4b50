-- Forget old lines of the audit log. Takes an instant (inclusive), how many. Looks only at the oldest lines.
DELETE FROM dibs.audit WHERE n = ANY (ARRAY(SELECT n FROM dibs.audit ORDER BY n LIMIT $2::int)) AND at <= $1::bigint;
