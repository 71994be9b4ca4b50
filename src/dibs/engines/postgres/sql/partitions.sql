-- name: partitions
-- The partitions of a queue, in order. Takes the queue, the partition to start after (as `Partition.key`), limit.
-- Returns keys of partitions. A seek each in `pending_partitions`, `running_partitions` and `partitions`.
WITH RECURSIVE found (partition, n) AS (
    SELECT $2::text COLLATE "C", 0
    UNION ALL
    SELECT h.partition, found.n + 1
    FROM found CROSS JOIN LATERAL (
        SELECT least(
            (SELECT min(p.partition) FROM {schema}.pending AS p WHERE p.partition > found.partition),
            (SELECT min(r.partition) FROM {schema}.running AS r WHERE r.partition > found.partition),
            (SELECT min(t.partition) FROM {schema}.tasks AS t WHERE t.partition > found.partition AND t.state <> 'pending')
        ) AS partition
    ) AS h
    WHERE found.n < $3::int AND starts_with(h.partition, $1 || ' ')
)
SELECT partition FROM found WHERE n > 0;

-- name: partitions_of
-- The partitions of some pending tasks. Takes ids. Returns keys of partitions. Seeks by id.
SELECT DISTINCT t.partition FROM {schema}.unfinished AS t
WHERE t.id = ANY ($1::uuid[]) AND t.state = 'pending' AND t.partition IS NOT NULL;

-- name: partition_loads
-- The load of partitions. Takes keys of partitions, the queue. Returns partition, running tasks, level and at of its
-- bucket. A range of `running_partitions` and a seek each.
SELECT
    w.partition,
    (SELECT count(*) FROM {schema}.running AS r WHERE r.partition = w.partition) AS running,
    b.level,
    b.at
FROM unnest($1::text[]) AS w (partition)
LEFT JOIN {schema}.buckets AS b
    ON b.queue = $2 AND b.scope = 'partition' AND b.whose = substr(w.partition, length($2) + 2) AND b.level >= 0;

-- name: gate
-- Gate pending tasks. Takes ids. Leaves out those that others have locked: the next claim meets them again. See
-- functions/tasks.sql.
SELECT {schema}.set_gates_{version}($1::uuid[], true, true);

-- name: gated_heads
-- The best pending tasks of partitions, one for each track and share, if they are gated and a slot is free. Takes keys
-- of partitions, the highest number that may run (NULL: any), ids to skip. Returns id, track, share. Reads the
-- partitions' pending tasks group by group, skipping to the next one.
WITH RECURSIVE heads (partition, track, share, id, gated) AS (
    SELECT w.partition, h.track, h.share, h.id, h.gated
    FROM unnest($1::text[]) AS w (partition)
    CROSS JOIN LATERAL (
        SELECT t.track, t.share, t.id, t.gated FROM {schema}.pending AS t
        WHERE t.partition = w.partition AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
    ) AS h
    WHERE $2::bigint IS NULL OR $2::bigint > (
        SELECT count(*) FROM {schema}.running AS r WHERE r.partition = w.partition
    )
    UNION ALL
    SELECT last.partition, h.track, h.share, h.id, h.gated
    FROM heads AS last
    CROSS JOIN LATERAL (
        SELECT t.track, t.share, t.id, t.gated FROM {schema}.pending AS t
        WHERE t.partition = last.partition AND (t.track, t.share) > (last.track, last.share)
          AND (t.id IN (SELECT unnest($3::uuid[]))) IS NOT TRUE
        ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
    ) AS h
)
SELECT id, track, share FROM heads WHERE gated;

-- name: guard
-- Guard the tasks of these partitions: from now on, their moves concern others. Takes keys of partitions.
WITH runs AS (
    UPDATE {schema}.running SET gate = 1 WHERE partition = ANY ($1::text[]) AND gate = 0 RETURNING id
)
UPDATE {schema}.tasks SET gate = 1 WHERE gate = 0 AND id = ANY (
    ARRAY(SELECT id FROM runs)
    || ARRAY(SELECT id FROM {schema}.pending WHERE partition = ANY ($1::text[]))
    || ARRAY(SELECT id FROM {schema}.tasks WHERE partition = ANY ($1::text[]) AND state <> 'pending')
);

-- name: ungate
-- Ungate pending tasks. Takes ids, and whether their moves still concern others. See functions/tasks.sql.
SELECT {schema}.set_gates_{version}($1::uuid[], false, $2::boolean);

-- name: gated_of
-- Some gated tasks of some tracks. Takes tracks, limit. Returns id, track, share. Reads a range of `pending` each.
SELECT h.id, s.track, h.share
FROM unnest($1::int[]) AS s (track)
CROSS JOIN LATERAL (
    SELECT p.id, p.share FROM {schema}.pending AS p WHERE p.track = s.track AND p.gated LIMIT $2::int
) AS h
LIMIT $2::int;

-- name: read_groups
-- What comes after tasks in their partitions, of the same track and share, gated or not. Takes partitions, tracks,
-- shares, ranks and ids to start after, a limit for each. Returns the number of what was asked for, rank, id, ready_at,
-- track, partition. Reads a range of `pending_partitions` each.
SELECT s.n, h.rank, h.id, h.ready_at, s.track, s.partition
FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::uuid[])
    WITH ORDINALITY AS s (partition, track, share, rank, id, n)
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.ready_at FROM {schema}.pending AS t
    WHERE t.partition = s.partition AND t.track = s.track AND t.share = s.share
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
    EXISTS (SELECT 1 FROM {schema}.pending AS p WHERE p.partition = $1 || ' ' || b.whose) AS pending
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
