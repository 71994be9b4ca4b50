-- Which leases are current. Takes a JSON array of (id, lease number). Returns a JSON array of (position, facts if
-- the task has been asked to stop, id). Seeks by primary key.
SELECT json_group_array(json_array(run.key, iif(t.cancel, t.facts, NULL), t.id))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';
