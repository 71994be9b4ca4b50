-- What is known of tasks that can't be read. Takes ids (JSON array). Returns id, place, state, stream, share, partition, day,
-- lease_expires_at. Seeks as find.sql does.
SELECT t.id, 'tasks', t.state, t.stream, t.share, t.partition, 0, t.lease_expires_at
FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
UNION ALL
SELECT t.id, 'dead', t.state, t.stream, '', NULL, t.day, NULL
FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
UNION ALL
SELECT t.id, 'finished', t.state, t.stream, '', NULL, t.day, NULL
FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value;
