-- Which leases are current. Takes a JSON array of (id, lease number, …). Returns a JSON array of (position, stream,
-- partition, 1 if other tasks wait for it) of the runs that may be settled. Seeks by primary key and in dibs_followed.
SELECT json_group_array(json_array(
    run.key, t.stream, t.partition, EXISTS (SELECT 1 FROM dibs_edges WHERE prerequisite = t.id AND open = 1)
))
FROM json_each(?) AS run CROSS JOIN dibs_tasks AS t
WHERE t.id = run.value ->> 0 AND t.lease = run.value ->> 1 AND t.state = 'running';
