-- What was just claimed. Takes ids (JSON array). Returns a JSON array of (lease, lease_expires_at, args, facts) in the
-- order of the ids. Seeks by primary key.
SELECT json_group_array(json_array(t.lease, t.lease_expires_at, t.args, t.facts))
FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value;
