-- name: partitions
-- The partitions of a queue, in order. Takes the queue's name and a space, the partition to start after, limit. Returns
-- keys of partitions (as `Partition.key`). One seek in `partitions` each.
WITH RECURSIVE found (partition, n) AS (
    (SELECT t.partition, 1 FROM {schema}.tasks AS t WHERE t.partition > $2 ORDER BY t.partition LIMIT 1)
    UNION ALL
    SELECT h.partition, found.n + 1
    FROM found CROSS JOIN LATERAL (
        SELECT t.partition FROM {schema}.tasks AS t WHERE t.partition > found.partition ORDER BY t.partition LIMIT 1
    ) AS h
    WHERE found.n < $3::int AND starts_with(h.partition, $1)
)
SELECT partition FROM found WHERE starts_with(partition, $1);

-- name: partitions_of
-- The partitions of some pending tasks. Takes ids. Returns keys of partitions. Seeks by id.
SELECT DISTINCT t.partition FROM {schema}.tasks AS t
WHERE t.id = ANY ($1::uuid[]) AND t.state = 'pending' AND t.partition IS NOT NULL;

-- name: partition_loads
-- The load of partitions. Takes keys of partitions, the queue. Returns partition, running tasks, level and at of its
-- bucket. A range of `partitions` and a seek each.
SELECT
    w.partition,
    (SELECT count(*) FROM {schema}.tasks AS t WHERE t.partition = w.partition AND t.state = 'running') AS running,
    b.level,
    b.at
FROM unnest($1::text[]) AS w (partition)
LEFT JOIN {schema}.buckets AS b
    ON b.queue = $2 AND b.scope = 'partition' AND b.whose = substr(w.partition, length($2) + 2) AND b.level >= 0;

-- name: gate
-- Reorder partitions. Takes partitions with headroom, partitions without, and ids to skip. Ungates the best pending
-- task of each track and share of the former, and gates all others. Reads the partitions' pending tasks group by group,
-- skipping to the next one.
WITH RECURSIVE heads (partition, track, share, id) AS (
    SELECT w.partition, h.track, h.share, h.id
    FROM unnest($1::text[]) AS w (partition)
    CROSS JOIN LATERAL (
        SELECT t.track, t.share, t.id FROM {schema}.tasks AS t
        WHERE t.partition = w.partition AND t.state = 'pending' AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
    ) AS h
    UNION ALL
    SELECT last.partition, h.track, h.share, h.id
    FROM heads AS last
    CROSS JOIN LATERAL (
        SELECT t.track, t.share, t.id FROM {schema}.tasks AS t
        WHERE t.partition = last.partition AND t.state = 'pending' AND (t.track, t.share) > (last.track, last.share)
          AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
    ) AS h
), wrong AS MATERIALIZED (
    SELECT t.id, 1 AS gate FROM {schema}.tasks AS t JOIN heads ON heads.id = t.id WHERE t.gate <> 1
    UNION ALL
    SELECT t.id, 2 FROM {schema}.tasks AS t
    WHERE t.partition = ANY ($1::text[] || $2::text[]) AND t.state = 'pending' AND t.gate < 2
      AND t.id NOT IN (SELECT heads.id FROM heads) AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
)
UPDATE {schema}.tasks AS t SET gate = wrong.gate FROM wrong WHERE t.id = wrong.id;

-- name: guard
-- Guard the tasks of these partitions: from now on, their moves concern others. Takes keys of partitions.
UPDATE {schema}.tasks SET gate = 1 WHERE partition = ANY ($1::text[]) AND gate = 0;

-- name: ungate
-- Ungate some tasks of a queue whose partitions are no longer limited. Takes tracks, limit.
UPDATE {schema}.tasks SET gate = CASE WHEN s.fair THEN 1 ELSE 0 END
FROM {schema}.tracks AS s
WHERE s.track = tasks.track AND tasks.id IN (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.track = ANY ($1::int[]) AND t.state = 'pending' AND t.gate = 2 LIMIT $2::int
);

-- name: read_group
-- What comes after a task in its partition, of the same track and share, gated or not. Takes partition, track, share,
-- rank, id, limit. Returns rank, id, ready_at, track, partition. Reads a range of `partitions`.
SELECT t.rank, t.id, t.ready_at, t.track, t.partition FROM {schema}.tasks AS t
WHERE t.partition = $1 AND t.state = 'pending' AND t.track = $2::int AND t.share = $3
  AND (t.rank, t.id) > ($4::bigint, $5::uuid)
ORDER BY t.rank, t.id LIMIT $6::int;

-- name: buckets
-- Token buckets. Takes queues, scopes, whose. Returns queue, scope, whose, level, at of those that exist. Seeks by
-- primary key.
SELECT b.queue, b.scope, b.whose, b.level, b.at
FROM unnest($1::text[], $2::text[], $3::text[]) AS w (queue, scope, whose)
JOIN {schema}.buckets AS b ON b.queue = w.queue AND b.scope = w.scope AND b.whose = w.whose
WHERE b.level >= 0;

-- name: buckets_after
-- Token buckets in order, locked. Takes queue, scope, whose to start after, limit. Returns queue, scope, whose, level,
-- at, refill_at.
SELECT queue, scope, whose, level, at, refill_at FROM {schema}.buckets
WHERE (queue, scope, whose) > ($1, $2, $3) ORDER BY queue, scope, whose LIMIT $4::int FOR UPDATE SKIP LOCKED;

-- name: client_buckets
-- Token buckets of clients, locked; one that does not exist is created, and its level marks it as never used. Takes
-- queues, clients, in order. Returns queue, client, level, at.
INSERT INTO {schema}.buckets AS b (queue, scope, whose, level, at)
SELECT w.queue, 'client', w.client, -1, 0
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (queue, client, n) ORDER BY w.n
ON CONFLICT (queue, scope, whose) DO UPDATE SET level = b.level
RETURNING b.queue, b.whose, b.level, b.at;

-- name: save_buckets
-- Spend tokens. Takes queues, scopes, whose, levels, instants, refill_at.
INSERT INTO {schema}.buckets (queue, scope, whose, level, at, refill_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (queue, scope, whose) DO UPDATE SET
    level = excluded.level, at = excluded.at, refill_at = excluded.refill_at;

-- name: delete_buckets
-- Delete buckets. Takes queues, scopes, whose.
DELETE FROM {schema}.buckets AS b USING unnest($1::text[], $2::text[], $3::text[]) AS idle (queue, scope, whose)
WHERE b.queue = idle.queue AND b.scope = idle.scope AND b.whose = idle.whose;

-- name: refills
-- The next partitions to get a token that have pending tasks. Takes the queue, limit. Returns level, at.
SELECT b.level, b.at FROM {schema}.buckets AS b
WHERE b.queue = $1 AND b.refill_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM {schema}.tasks AS t WHERE t.partition = $1 || ' ' || b.whose AND t.state = 'pending'
)
ORDER BY b.refill_at LIMIT $2::int;

-- name: refills_due
-- Partitions that may have a token by now. Takes the queue, now, limit. Returns whose. A range of `refills`.
SELECT whose FROM {schema}.buckets
WHERE queue = $1 AND refill_at IS NOT NULL AND refill_at <= $2::bigint ORDER BY refill_at LIMIT $3::int;

-- name: save_refills
-- Save when partitions without a token will have one. Takes queues, partitions, refill_at (NULL: it has some).
UPDATE {schema}.buckets AS b SET refill_at = new.refill_at
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS new (queue, whose, refill_at)
WHERE b.queue = new.queue AND b.scope = 'partition' AND b.whose = new.whose
  AND b.refill_at IS DISTINCT FROM new.refill_at;
