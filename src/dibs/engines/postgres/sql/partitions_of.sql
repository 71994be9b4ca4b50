-- The partitions of some pending tasks. Takes ids. Returns partitions, each with the queue's name in front. Seeks by id.
SELECT DISTINCT t.partition FROM dibs.tasks AS t
WHERE t.id = ANY ($1::uuid[]) AND t.state = 'pending' AND t.partition IS NOT NULL;
