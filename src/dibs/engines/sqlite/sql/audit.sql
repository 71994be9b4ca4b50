-- The newest lines of the audit log. Takes how many. Returns a JSON array of (n, entry as JSON
-- text).
SELECT json_group_array(json_array(n, entry)) FROM (SELECT n, entry FROM dibs_audit ORDER BY n DESC LIMIT ?);
