-- name: partitions
-- The partitions of a queue, in order. Takes the queue, the partition to start after (as `Partition.key`), limit.
-- Returns keys of partitions. One seek in `partitions` each.
WITH RECURSIVE found (partition, n) AS (
    (SELECT t.partition, 1 FROM {schema}.tasks AS t WHERE t.partition > $2 ORDER BY t.partition LIMIT 1)
    UNION ALL
    SELECT h.partition, found.n + 1
    FROM found CROSS JOIN LATERAL (
        SELECT t.partition FROM {schema}.tasks AS t WHERE t.partition > found.partition ORDER BY t.partition LIMIT 1
    ) AS h
    WHERE found.n < $3::int AND starts_with(h.partition, $1 || ' ')
)
SELECT partition FROM found WHERE starts_with(partition, $1 || ' ');

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
-- Gate pending tasks. Takes ids. Moves them from `pending` to `gated`, except those that others have locked: the next
-- claim meets them again.
WITH free AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.id = ANY ($1::uuid[]) AND t.state = 'pending' AND t.gate < 2 ORDER BY t.id FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks AS t SET gate = 2 FROM free WHERE t.id = free.id;

-- name: gated_heads
-- Gated tasks to ungate. Takes keys of partitions, the highest number that may run in each (NULL: any), how many to
-- take at most of a group, ids to skip. Returns id, track, share. See functions/partitions.sql.
SELECT * FROM {schema}.gated_heads_{version}(
    $1::text[], array_fill($2::bigint, ARRAY[cardinality($1::text[])]), $3::int, $4::uuid[]
);

-- name: guard
-- Guard the tasks of these partitions: from now on, their moves concern others. Takes keys of partitions.
UPDATE {schema}.tasks SET gate = 1 WHERE partition = ANY ($1::text[]) AND gate = 0;

-- name: ungate
-- Ungate pending tasks. Takes ids, and whether their moves still concern others.
UPDATE {schema}.tasks SET gate = CASE WHEN $2::boolean THEN 1 ELSE 0 END WHERE id = ANY ($1::uuid[]);

-- name: gated_of
-- Some gated tasks of some tracks. Takes tracks, limit. Returns id, track, share. Reads a range of `gated` each.
SELECT h.id, s.track, h.share
FROM unnest($1::int[]) AS s (track)
CROSS JOIN LATERAL (
    SELECT t.id, t.share FROM {schema}.tasks AS t
    WHERE t.track = s.track AND t.state = 'pending' AND t.gate = 2 LIMIT $2::int
) AS h
LIMIT $2::int;

-- name: read_groups
-- What comes after tasks in their partitions, of the same track and share, gated or not. Takes partitions, tracks,
-- shares, ranks and ids to start after, a limit for each. Returns the number of what was asked for, rank, id, ready_at,
-- track, partition. Reads a range of `partitions` each.
SELECT s.n, h.rank, h.id, h.ready_at, s.track, s.partition
FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::uuid[])
    WITH ORDINALITY AS s (partition, track, share, rank, id, n)
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.ready_at FROM {schema}.tasks AS t
    WHERE t.partition = s.partition AND t.state = 'pending' AND t.track = s.track AND t.share = s.share
      AND (t.rank, t.id) > (s.rank, s.id)
    ORDER BY t.rank, t.id LIMIT $6::int
) AS h
ORDER BY s.n, h.rank, h.id;

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
-- Partitions of a queue that will get a token, soonest first. Takes the queue, limit. Returns whose, level, at, whether
-- tasks are pending there. Reads a range of `refills`, and one seek each.
SELECT
    b.whose, b.level, b.at,
    EXISTS (SELECT 1 FROM {schema}.tasks AS t WHERE t.partition = $1 || ' ' || b.whose AND t.state = 'pending') AS pending
FROM {schema}.buckets AS b
WHERE b.queue = $1 AND b.refill_at IS NOT NULL
ORDER BY b.refill_at LIMIT $2::int;

-- name: refills_due
-- Partitions that may have a token by now. Takes the queue, now, limit. Returns whose. A range of `refills`.
SELECT whose FROM {schema}.buckets
WHERE queue = $1 AND refill_at IS NOT NULL AND refill_at <= $2::bigint ORDER BY refill_at LIMIT $3::int;

-- name: save_refills
-- Save when partitions without tokens will have one. Takes queues, partitions, levels, instants, refill_at. Where a
-- bucket exists, only refill_at changes.
INSERT INTO {schema}.buckets (queue, scope, whose, level, at, refill_at)
SELECT w.queue, 'partition', w.whose, w.level, w.at, w.refill_at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS w (queue, whose, level, at, refill_at)
ON CONFLICT (queue, scope, whose) DO UPDATE SET refill_at = excluded.refill_at;

-- name: forget_refills
-- Delete refills that are over, or that no task waits for. Takes the queue, partitions.
UPDATE {schema}.buckets SET refill_at = NULL WHERE queue = $1 AND scope = 'partition' AND whose = ANY ($2::text[]);
