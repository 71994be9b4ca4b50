-- Which leases are current. Takes a JSON array of (id, lease number, …). Returns a JSON array of (position, stream,
-- partition, id) of the runs that may be settled. Seeks by primary key.
SELECT json_group_array(json_array(run.key, t.stream, t.partition, t.id))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';
