-- What is about to be claimed. Takes ids (JSON array). Returns a JSON array of (id, lease, lease_for, args, facts) in the
-- order of the ids. Seeks by primary key.
SELECT json_group_array(json_array(t.id, t.lease, t.lease_for, t.args, t.facts))
FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value;
