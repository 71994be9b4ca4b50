-- name: find
-- Tasks by id, in any place. Takes ids (JSON array), the lowest and the highest of them. Returns three JSON arrays of
-- rows (the columns of `Row`): unfinished, dead, finished. Seeks by primary key; finished tasks only in days whose range
-- of ids includes the id, of those (`near`) that can have any of them.
SELECT
    (
        SELECT json_group_array(json_array(
            t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease,
            coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = t.batch), t.lease_expires_at),
            t.started_at, t.worker, t.sequence, t.version, t.progress, NULL, NULL, t.args, t.facts, t.created_at
        ))
        FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
    ),
    (
        SELECT json_group_array(json_array(
            t.id, t.track, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
            t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at, NULL, t.args, t.facts, t.created_at
        ))
        FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
    ),
    (
        WITH near AS MATERIALIZED (SELECT * FROM dibs_days WHERE lowest <= ?3 AND highest >= ?2)
        SELECT json_group_array(json_array(
            t.id, t.track, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
            t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at, t.result, t.args, t.facts, t.created_at
        ))
        FROM json_each(?1) AS wanted CROSS JOIN near AS d CROSS JOIN dibs_finished AS t
        WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value
    );

-- name: find_each
-- Tasks by id, in any place, for when one of them spoils the arrays of `find`. Takes ids (JSON array). Returns rows
-- (the columns of `Row`). Seeks as `find` does.
SELECT
    t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease,
    coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = t.batch), t.lease_expires_at),
    t.started_at, t.worker, t.sequence, t.version, t.progress, NULL, NULL, t.args, t.facts, t.created_at
FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
UNION ALL
SELECT
    t.id, t.track, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
    t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at, NULL, t.args, t.facts, t.created_at
FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
UNION ALL
SELECT
    t.id, t.track, t.state, t.rank, t.ready_at, NULL, NULL, t.lease, NULL,
    t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at, t.result, t.args, t.facts, t.created_at
FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value;

-- name: prerequisites
-- The states of tasks in any place. Takes ids (JSON array). Returns a JSON array of (id, state); an unknown state of a
-- finished task is read as completed. Seeks by primary key, like `find`, but reads nothing else.
SELECT json_group_array(json_array(id, state))
FROM (
    SELECT t.id, t.state FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
    UNION ALL
    SELECT t.id, 'dead' FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
    UNION ALL
    SELECT t.id, iif(t.state = 'cancelled', 'cancelled', 'completed')
    FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
    WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value
);

-- name: insert_task
-- Store an unfinished task that is in no place. Takes the columns of `task_columns`, and created_at. Changes no row if
-- the id exists.
INSERT OR IGNORE INTO dibs_tasks (
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, share, gated, partition, expires_at, workflow, version, progress, args, facts, created_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: save_task
-- Update an unfinished task. Takes the columns of `task_columns`, and the lease number, state and version that it was
-- loaded with: the fence is in the statement. Changes no row if one differs. The end of a lease stays as it is, and may be
-- its batch's. Seeks by primary key.
UPDATE dibs_tasks SET
    track = ?2, state = ?3, rank = ?4, ready_at = ?5, due_at = ?6, rerank_at = ?7, lease = ?8, lease_for = ?9,
    lease_expires_at = iif(?3 = state, lease_expires_at, ?10), batch = iif(?3 = 'running', batch, NULL),
    started_at = ?11, worker = ?12, sequence = ?13, cancel = ?14, share = ?15, gated = ?16, partition = ?17,
    expires_at = ?18, workflow = ?19, version = ?20, progress = ?21, args = ?22, facts = ?23
WHERE id = ?1 AND lease = ?24 AND state = ?25 AND version = ?26;

-- name: save_dead
-- Store dead tasks. Takes a JSON array of ended tasks (the columns of `ended_columns`; dead ones have no result).
INSERT INTO dibs_dead (
    id, day, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, args,
    facts, workflow, created_at
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 14, value ->> 15, value ->> 16,
    value ->> 17
FROM json_each(?);

-- name: save_finished
-- Store finished tasks one by one (cancelled ones; completions have a bulk statement, `complete`). Takes a JSON array
-- of ended tasks (the columns of `ended_columns`).
INSERT INTO dibs_finished (
    id, day, track, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, version, progress, result,
    args, facts, workflow, created_at
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16, value ->> 17
FROM json_each(?);

-- name: delete_tasks
-- Delete unfinished tasks. Takes a JSON array of (id, lease number, state, version) as they were loaded; a task that
-- differs stays. Seeks by primary key.
DELETE FROM dibs_tasks
WHERE (id, lease, state, version) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?)
);

-- name: delete_dead
-- Delete dead tasks. Takes the same as `delete_tasks`. Seeks by primary key.
DELETE FROM dibs_dead
WHERE (id, lease, state, version) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?)
);

-- name: delete_finished
-- Delete finished tasks. Takes the same as `delete_tasks`, after the day. Seeks by primary key.
DELETE FROM dibs_finished
WHERE (day, id, lease, state, version) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?)
);

-- name: purge_tasks
-- Delete unfinished tasks, whatever they contain. Takes ids (JSON array).
DELETE FROM dibs_tasks WHERE id IN (SELECT value FROM json_each(?));

-- name: purge_dead
-- Delete dead tasks, whatever they contain. Takes ids (JSON array).
DELETE FROM dibs_dead WHERE id IN (SELECT value FROM json_each(?));

-- name: purge_finished
-- Delete finished tasks, whatever they contain. Takes a JSON array of (day, id). Seeks by primary key.
DELETE FROM dibs_finished WHERE (day, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: pending_of
-- Some pending tasks of a track, gated ones last. Takes the track, limit, ids to skip (JSON array). Returns a JSON
-- array of rows (the columns of `Row`). Reads a range of dibs_pending.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_pending
    WHERE state = 'pending' AND track = ?1 AND id NOT IN (SELECT value FROM json_each(?3)) LIMIT ?2
);

-- name: due_of
-- Some tasks of some tracks that are not due. Takes tracks (JSON array), limit, ids to skip (JSON array). Returns a
-- JSON array of rows (the columns of `Row`). Visits waiting tasks through dibs_due until it has enough; only when a
-- queue is deleted.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_due
    WHERE due_at IS NOT NULL AND track IN (SELECT value FROM json_each(?1))
      AND id NOT IN (SELECT value FROM json_each(?3))
    LIMIT ?2
);

-- name: blocked_of
-- Some blocked tasks of some tracks. Takes tracks (JSON array), limit, ids to skip (JSON array). Returns a JSON array
-- of rows (the columns of `Row`). Reads ranges of dibs_blocked.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT t.* FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t INDEXED BY dibs_blocked
    WHERE t.state = 'blocked' AND t.track = wanted.value
      AND t.id NOT IN (SELECT value FROM json_each(?3))
    LIMIT ?2
) AS found;

-- name: expired
-- Running tasks whose lease has ended by an instant, longest ago first. Takes the instant, limit, ids to skip (JSON
-- array). Returns a JSON array of rows (the columns of `Row`). Reads a range of dibs_leases, the batches,
-- which are few, and the tasks of those that have ended.
SELECT json_group_array(json_array(
    t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, found.ends, t.started_at, t.worker,
    t.sequence, t.version, t.progress, NULL, NULL, t.args, t.facts, t.created_at
))
FROM (
    SELECT id, lease_expires_at AS ends FROM (
        SELECT id, lease_expires_at FROM dibs_tasks INDEXED BY dibs_leases
        WHERE lease_expires_at IS NOT NULL AND lease_expires_at <= ?1
          AND id NOT IN (SELECT value FROM json_each(?3))
        ORDER BY lease_expires_at, id LIMIT ?2
    )
    UNION ALL
    SELECT id, ends FROM (
        SELECT m.id, b.expires_at AS ends
        FROM dibs_batches AS b CROSS JOIN dibs_tasks AS m INDEXED BY dibs_batched
        WHERE b.expires_at <= ?1 AND m.batch = b.batch AND m.id NOT IN (SELECT value FROM json_each(?3))
        ORDER BY b.expires_at LIMIT ?2
    )
    ORDER BY ends, id LIMIT ?2
) AS found
CROSS JOIN dibs_tasks AS t WHERE t.id = found.id;

-- name: delete_batches
-- Delete batches that have ended by an instant, and of which nothing is left. Takes the instant. Reads all batches.
DELETE FROM dibs_batches
WHERE expires_at <= ?1 AND NOT EXISTS (SELECT 1 FROM dibs_tasks AS t WHERE t.batch = dibs_batches.batch);

-- name: running_of
-- Running tasks of some workers. Takes workers (JSON array), limit, ids to skip (JSON array). Returns a JSON array of
-- rows (the columns of `Row`). Visits the running tasks through dibs_leases, only when a worker has been found dead.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease,
    coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = found.batch), found.lease_expires_at),
    started_at, worker, sequence, version, progress, NULL, NULL, args, facts, created_at
))
FROM (
    SELECT * FROM dibs_tasks INDEXED BY dibs_leases
    WHERE lease_expires_at IS NOT NULL AND worker IN (SELECT value FROM json_each(?1))
      AND id NOT IN (SELECT value FROM json_each(?3))
    ORDER BY lease_expires_at, id LIMIT ?2
) AS found;

-- name: has_running
-- Which of some workers have running tasks. Takes workers (JSON array), ids to skip (JSON array). Returns workers (JSON
-- array). Reads as `running_of`.
SELECT json_group_array(worker)
FROM (
    SELECT DISTINCT worker FROM dibs_tasks INDEXED BY dibs_leases
    WHERE lease_expires_at IS NOT NULL AND worker IN (SELECT value FROM json_each(?1))
      AND id NOT IN (SELECT value FROM json_each(?2))
);

-- name: purge_row
-- What is known of tasks that can't be read. Takes ids (JSON array). Returns a JSON array of (id, place, state, track,
-- share, partition, day, lease_expires_at). Seeks as `find` does.
SELECT json_group_array(json_array(id, place, state, track, share, partition, day, lease_expires_at))
FROM (
    SELECT
        t.id, 'tasks' AS place, t.state, t.track, t.share, t.partition, 0 AS day,
        coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = t.batch), t.lease_expires_at)
            AS lease_expires_at
    FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.id = wanted.value
    UNION ALL
    SELECT t.id, 'dead', t.state, t.track, '', NULL, t.day, NULL
    FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.id = wanted.value
    UNION ALL
    SELECT t.id, 'finished', t.state, t.track, '', NULL, t.day, NULL
    FROM json_each(?1) AS wanted CROSS JOIN dibs_days AS d CROSS JOIN dibs_finished AS t
    WHERE wanted.value BETWEEN d.lowest AND d.highest AND t.day = d.day AND t.id = wanted.value
);

-- name: history
-- The history of a task, oldest first. Takes its id. Returns a JSON array of (n, entry as JSON text).
SELECT json_group_array(json_array(n, entry)) FROM (SELECT n, entry FROM dibs_history WHERE task = ? ORDER BY n);

-- name: all_history
-- All history entries, in order. Takes task and number to start after, limit. Returns a JSON array of (task, n, entry
-- as JSON text). Reads a range of the primary key.
SELECT json_group_array(json_array(task, n, entry))
FROM (SELECT task, n, entry FROM dibs_history WHERE (task, n) > (?1, ?2) ORDER BY task, n LIMIT ?3);

-- name: add_history
-- Add entries to histories. Takes a JSON array of (task, entry as JSON text); later entries get higher numbers.
INSERT INTO dibs_history (task, n, entry)
SELECT
    value ->> 0,
    (SELECT coalesce(max(n), 0) FROM dibs_history WHERE task = value ->> 0) + 1 + key,
    value ->> 1
FROM json_each(?);

-- name: trim_history
-- Keep the newest entries of some histories. Takes tasks (JSON array), how many to keep.
DELETE FROM dibs_history WHERE (task, n) IN (
    SELECT h.task, h.n FROM json_each(?1) AS wanted CROSS JOIN dibs_history AS h
    WHERE h.task = wanted.value
      AND h.n <= (SELECT n FROM dibs_history WHERE task = wanted.value ORDER BY n DESC LIMIT 1 OFFSET ?2)
);

-- name: delete_history
-- Delete the histories of tasks. Takes ids (JSON array).
DELETE FROM dibs_history WHERE task IN (SELECT value FROM json_each(?));

-- name: keys
-- Idempotency keys. Takes a JSON array of (queue, key). Returns a JSON array of (queue, key, task, fingerprint,
-- held_until) of those that exist. Seeks by primary key.
SELECT json_group_array(json_array(k.queue, k.key, k.task, k.fingerprint, k.held_until))
FROM json_each(?) AS wanted CROSS JOIN dibs_keys AS k
WHERE k.queue = wanted.value ->> 0 AND k.key = wanted.value ->> 1;

-- name: all_keys
-- All idempotency keys, in order. Takes queue and key to start after, limit. Returns a JSON array of (queue, key, task,
-- fingerprint, held_until). Reads a range of the primary key.
SELECT json_group_array(json_array(queue, key, task, fingerprint, held_until))
FROM (SELECT * FROM dibs_keys WHERE (queue, key) > (?1, ?2) ORDER BY queue, key LIMIT ?3);

-- name: save_keys
-- Take idempotency keys. Takes a JSON array of (queue, key, task, fingerprint, held_until). A free key is taken over.
REPLACE INTO dibs_keys (queue, key, task, fingerprint, held_until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?);

-- name: delete_keys
-- Free idempotency keys. Takes a JSON array of (queue, key).
DELETE FROM dibs_keys WHERE (queue, key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));

-- name: ended_keys
-- Idempotency keys whose window is over. Takes now; held_until, queue and key to start after; limit. Returns a JSON
-- array of (held_until, queue, key, 1 if its task is not unfinished). Reads a range of dibs_keys_held.
SELECT json_group_array(json_array(
    held_until, queue, key, NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE id = task)
))
FROM (
    SELECT held_until, queue, key, task FROM dibs_keys INDEXED BY dibs_keys_held
    WHERE held_until <= ?1 AND (held_until, queue, key) > (?2, ?3, ?4)
    ORDER BY held_until, queue, key LIMIT ?5
);

-- name: purge_keys
-- Free the idempotency keys of purged tasks. Takes a JSON array of (queue, key, task); a key that another task holds by
-- now stays.
DELETE FROM dibs_keys
WHERE (queue, key, task) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));

-- name: purge_keys_of
-- Free the idempotency keys of an unreadable task, whose own key can't be read either. Takes its id. Reads all keys;
-- only when such a task is purged.
DELETE FROM dibs_keys WHERE task = ?;
