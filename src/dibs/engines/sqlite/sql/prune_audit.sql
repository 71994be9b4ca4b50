-- Forget old lines of the audit log. Takes an instant (inclusive), how many. Looks only at the oldest lines.
DELETE FROM dibs_audit
WHERE n IN (SELECT n FROM dibs_audit ORDER BY n LIMIT ?2) AND at <= ?1;
