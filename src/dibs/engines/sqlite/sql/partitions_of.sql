-- The partitions of some pending tasks. Takes ids (JSON array). Returns a JSON array of partitions, each with the queue's
-- name in front. Seeks by primary key.
SELECT json_group_array(partition)
FROM (
    SELECT DISTINCT t.partition FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t
    WHERE t.id = wanted.value AND t.state = 'pending' AND t.partition IS NOT NULL
);
