-- What is known of tasks that can't be read; `lock` has locked them. Takes ids. Returns id, place, state, stream, share, partition, day,
-- lease_expires_at. Seeks by id, in each day of finished tasks.
(
    SELECT t.id, 'tasks' AS place, t.state, t.stream, t.share, t.partition, 0 AS day, t.lease_expires_at
    FROM dibs.tasks AS t WHERE t.id = ANY ($1::uuid[])
)
UNION ALL
(SELECT t.id, 'dead', t.state, t.stream, '', NULL, t.day, NULL FROM dibs.dead AS t WHERE t.id = ANY ($1::uuid[]))
UNION ALL
(SELECT t.id, 'finished', t.state, t.stream, '', NULL, t.day, NULL FROM dibs.finished AS t WHERE t.id = ANY ($1::uuid[]));
