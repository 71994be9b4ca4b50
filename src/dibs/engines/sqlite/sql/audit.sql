-- The newest lines of the audit log. Takes how many. Returns a JSON array of entries (JSON text each).
SELECT json_group_array(entry) FROM (SELECT entry FROM dibs_audit ORDER BY n DESC LIMIT ?);
