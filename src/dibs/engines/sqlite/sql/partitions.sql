-- name: partitions
-- The partitions of a queue with pending tasks, in order. Takes the queue, the partition to start after (as
-- `Partition.key`), limit. Returns keys of partitions (JSON array). One seek in dibs_partitions each.
WITH RECURSIVE found (partition) AS (
    SELECT (
        SELECT min(partition) FROM dibs_tasks INDEXED BY dibs_partitions
        WHERE state = 'pending' AND partition > ?2 AND partition < ?1 || '!'
    )
    UNION ALL
    SELECT (
        SELECT min(t.partition) FROM dibs_tasks AS t INDEXED BY dibs_partitions
        WHERE t.state = 'pending' AND t.partition > found.partition AND t.partition < ?1 || '!'
    )
    FROM found WHERE found.partition IS NOT NULL
    LIMIT ?3
)
SELECT json_group_array(partition) FROM found WHERE partition IS NOT NULL;

-- name: partitions_of
-- The partitions of some pending tasks. Takes ids (JSON array). Returns keys of partitions (JSON array). Seeks by
-- primary key.
SELECT json_group_array(partition)
FROM (
    SELECT DISTINCT t.partition FROM json_each(?) AS wanted CROSS JOIN dibs_tasks AS t
    WHERE t.id = wanted.value AND t.state = 'pending' AND t.partition IS NOT NULL
);

-- name: partition_loads
-- The load of partitions. Takes keys of partitions (JSON array), the queue. Returns a JSON array of (key, running
-- tasks, level and at of its bucket or NULL). A range of dibs_slots and a seek each.
SELECT json_group_array(json_array(
    wanted.value,
    (SELECT count(*) FROM dibs_tasks WHERE partition = wanted.value AND state = 'running'),
    b.level,
    b.at
))
FROM json_each(?1) AS wanted LEFT JOIN dibs_buckets AS b
    ON b.queue = ?2 AND b.scope = 'partition' AND b.whose = substr(wanted.value, length(?2) + 2);

-- name: gate
-- Gate pending tasks. Takes ids (JSON array). Moves them within dibs_pending.
UPDATE dibs_tasks SET gated = 1 WHERE id IN (SELECT value FROM json_each(?)) AND state = 'pending' AND gated = 0;

-- name: ungate
-- Ungate pending tasks. Takes ids (JSON array), and whether their moves still concern others, which makes no difference
-- here. Moves them within dibs_pending.
UPDATE dibs_tasks SET gated = 0 WHERE id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL;

-- name: gated_of
-- Some gated tasks of some tracks. Takes tracks (JSON array), limit. Returns a JSON array of (id, track, share). Reads
-- ranges of dibs_pending.
SELECT json_group_array(json_array(id, track, share))
FROM (
    SELECT id, track, share FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND track IN (SELECT value FROM json_each(?1)) AND gated = 1 LIMIT ?2
);

-- name: gated_heads
-- The best pending tasks of partitions, one for each track and share, if they are gated and a slot is free. Takes keys
-- of partitions (JSON array), the highest number that may run (NULL: any), how many to take at most of a group (here,
-- one), ids to skip (JSON array). Returns a JSON array of (id, track, share). Some seeks in dibs_partitions for each
-- group: one finds out whether there is another, since most partitions have one. Two find that, because SQLite seeks
-- "greater than (track, share)" from the beginning of the last one, which may be deep.
WITH RECURSIVE heads (partition, id) AS (
    SELECT
        wanted.value,
        (
            SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
            WHERE t.partition = wanted.value AND t.state = 'pending'
              AND t.id NOT IN (SELECT value FROM json_each(?4))
            ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
        )
    FROM json_each(?1) AS wanted
    WHERE ?2 IS NULL
       OR (SELECT count(*) FROM dibs_tasks AS r WHERE r.partition = wanted.value AND r.state = 'running') < ?2
    UNION ALL
    SELECT
        heads.partition,
        coalesce(
            (
                SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
                WHERE t.partition = heads.partition AND t.state = 'pending'
                  AND t.track = last.track AND t.share > last.share
                  AND t.id NOT IN (SELECT value FROM json_each(?4))
                ORDER BY t.share, t.rank, t.id LIMIT 1
            ),
            (
                SELECT t.id FROM dibs_tasks AS t INDEXED BY dibs_partitions
                WHERE t.partition = heads.partition AND t.state = 'pending' AND t.track > last.track
                  AND t.id NOT IN (SELECT value FROM json_each(?4))
                ORDER BY t.track, t.share, t.rank, t.id LIMIT 1
            )
        )
    FROM heads CROSS JOIN dibs_tasks AS last WHERE last.id = heads.id
      AND (last.track, last.share) < (
          SELECT t.track, t.share FROM dibs_tasks AS t INDEXED BY dibs_partitions
          WHERE t.partition = heads.partition AND t.state = 'pending'
          ORDER BY t.track DESC, t.share DESC, t.rank DESC, t.id DESC LIMIT 1
      )
)
SELECT json_group_array(json_array(t.id, t.track, t.share))
FROM heads CROSS JOIN dibs_tasks AS t WHERE t.id = heads.id AND t.gated = 1;

-- name: read_group
-- Pending tasks of one track and share in a partition. Takes the partition's key, track, share, rank and id to start
-- after, limit. Returns a JSON array as `read_track` does. Reads a range of dibs_partitions.
SELECT json_group_array(json_array(rank, id, ready_at, track, partition))
FROM (
    SELECT rank, id, ready_at, track, partition FROM dibs_tasks INDEXED BY dibs_partitions
    WHERE partition = ?1 AND state = 'pending' AND track = ?2 AND share = ?3 AND (rank, id) > (?4, ?5)
    ORDER BY rank, id LIMIT ?6
);

-- name: read_groups
-- `read_group` for some of them in one step. Takes a JSON array of what it takes but the limit, and that. Returns an
-- array of its answers.
SELECT '[' || group_concat((
    SELECT json_group_array(json_array(rank, id, ready_at, track, partition))
    FROM (
        SELECT rank, id, ready_at, track, partition FROM dibs_tasks INDEXED BY dibs_partitions
        WHERE partition = wanted.value ->> 0 AND state = 'pending' AND track = wanted.value ->> 1
          AND share = wanted.value ->> 2 AND (rank, id) > (wanted.value ->> 3, wanted.value ->> 4)
        ORDER BY rank, id LIMIT ?2
    )
)) || ']'
FROM json_each(?1) AS wanted;

-- name: buckets
-- Some token buckets. Takes a JSON array of (queue, scope, whose). Returns a JSON array of (queue, scope, whose, level,
-- at) of those that exist. Seeks by primary key.
SELECT json_group_array(json_array(b.queue, b.scope, b.whose, b.level, b.at))
FROM json_each(?) AS wanted CROSS JOIN dibs_buckets AS b
WHERE b.queue = wanted.value ->> 0 AND b.scope = wanted.value ->> 1 AND b.whose = wanted.value ->> 2;

-- name: client_buckets
-- Token buckets of clients. Takes a JSON array of (queue, client). Returns a JSON array of (queue, client, level, at) of
-- those that exist. Seeks by primary key.
SELECT json_group_array(json_array(b.queue, b.whose, b.level, b.at))
FROM json_each(?) AS wanted CROSS JOIN dibs_buckets AS b
WHERE b.queue = wanted.value ->> 0 AND b.scope = 'client' AND b.whose = wanted.value ->> 1;

-- name: buckets_after
-- Token buckets, in order. Takes queue, scope and whose to start after, limit. Returns a JSON array of (queue, scope,
-- whose, level, at, refill_at). Reads a range of the primary key.
SELECT json_group_array(json_array(queue, scope, whose, level, at, refill_at))
FROM (
    SELECT * FROM dibs_buckets WHERE (queue, scope, whose) > (?1, ?2, ?3) ORDER BY queue, scope, whose LIMIT ?4
);

-- name: save_buckets
-- Spend tokens. Takes a JSON array of (queue, scope, whose, level, at, refill_at or NULL). Seeks by primary key.
REPLACE INTO dibs_buckets (queue, scope, whose, level, at, refill_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?);

-- name: delete_buckets
-- Delete token buckets. Takes a JSON array of (queue, scope, whose). Seeks by primary key.
DELETE FROM dibs_buckets
WHERE (queue, scope, whose) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: forget_buckets
-- Delete some token buckets of a deleted queue. Takes the queue, limit. Reads a range of the primary key.
DELETE FROM dibs_buckets WHERE (queue, scope, whose) IN (
    SELECT queue, scope, whose FROM dibs_buckets WHERE queue = ?1 LIMIT ?2
);

-- name: refills
-- Partitions of a queue that will get a token, soonest first. Takes the queue, limit. Returns a JSON array of
-- (partition, level, at, 1 if tasks are pending there). Reads a range of dibs_refills, and one seek each.
SELECT json_group_array(json_array(
    whose, level, at,
    EXISTS (SELECT 1 FROM dibs_tasks WHERE partition = queue || ' ' || whose AND state = 'pending')
))
FROM (
    SELECT queue, whose, level, at FROM dibs_buckets INDEXED BY dibs_refills
    WHERE queue = ?1 AND refill_at IS NOT NULL ORDER BY refill_at LIMIT ?2
);

-- name: refills_due
-- Partitions of a queue that have a token by now. Takes the queue, now, limit. Returns partitions (JSON array). Reads a
-- range of dibs_refills.
SELECT json_group_array(whose)
FROM (
    SELECT whose FROM dibs_buckets INDEXED BY dibs_refills
    WHERE queue = ?1 AND refill_at IS NOT NULL AND refill_at <= ?2 ORDER BY refill_at LIMIT ?3
);

-- name: save_refills
-- Save when partitions without tokens will have one. Takes a JSON array of (queue, partition, level, at, refill_at).
-- Where a bucket exists, only refill_at changes. Seeks by primary key.
INSERT INTO dibs_buckets (queue, scope, whose, level, at, refill_at)
SELECT value ->> 0, 'partition', value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?) WHERE true
ON CONFLICT (queue, scope, whose) DO UPDATE SET refill_at = excluded.refill_at;

-- name: forget_refills
-- Delete refills that are over, or that no task waits for. Takes the queue, partitions (JSON array).
UPDATE dibs_buckets SET refill_at = NULL
WHERE queue = ?1 AND scope = 'partition' AND whose IN (SELECT value FROM json_each(?2));
