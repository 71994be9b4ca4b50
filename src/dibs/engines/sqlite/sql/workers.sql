-- name: worker
-- One worker. Takes its id. Returns a JSON array of (id, state, record as JSON text), empty if there is no such worker.
SELECT json_group_array(json_array(id, state, record)) FROM dibs_workers WHERE id = ?;

-- name: workers
-- All workers by id. Takes nothing. Returns a JSON array of (id, state, record as JSON text).
SELECT json_group_array(json_array(id, state, record)) FROM (SELECT * FROM dibs_workers ORDER BY id);

-- name: bytes_held
-- The bytes of the presence file that living workers should hold. Takes nothing. Returns a JSON array of (worker, byte).
SELECT json_group_array(json_array(id, presence)) FROM dibs_workers WHERE presence IS NOT NULL AND state <> 'dead';

-- name: new_presence
-- The next byte of the presence file. Takes nothing. Returns its offset; none is given twice.
UPDATE dibs_store SET presence = presence + 1 RETURNING presence;

-- name: save_worker
-- Save a heartbeat. Takes id, state, expires_at, presence (NULL: unchanged), record (JSON).
INSERT INTO dibs_workers (id, state, expires_at, presence, record) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state,
    expires_at = excluded.expires_at,
    presence = coalesce(excluded.presence, presence),
    record = excluded.record;

-- name: set_worker_state
-- Set the state that a worker must obey. Takes the state and the worker's id.
UPDATE dibs_workers SET state = ?1 WHERE id = ?2;

-- name: delete_worker
-- Delete a worker that has shut down cleanly. Takes its id.
DELETE FROM dibs_workers WHERE id = ?;

-- name: expired_workers
-- Workers to mark dead. Takes by when their record has expired, and ids of absent ones (JSON array). Returns ids (JSON
-- array).
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_workers
    WHERE state <> 'dead' AND (expires_at <= ?1 OR id IN (SELECT value FROM json_each(?2))) ORDER BY id
);

-- name: bury_workers
-- Mark workers dead. Takes ids (JSON array). Their byte is released.
UPDATE dibs_workers SET state = 'dead', presence = NULL WHERE id IN (SELECT value FROM json_each(?));

-- name: prune_workers
-- Delete workers that died long ago. Takes the instant they must have died before (inclusive), limit.
DELETE FROM dibs_workers
WHERE id IN (SELECT id FROM dibs_workers WHERE state = 'dead' AND expires_at <= ?1 LIMIT ?2);

-- name: minutes
-- What workers did. Takes the first and last minute, and a queue or NULL for all. Returns a JSON array of (minute,
-- record as JSON text), oldest first. Reads a range of the primary key.
SELECT json_group_array(json_array(minute, record))
FROM (
    SELECT minute, record FROM dibs_minutes
    WHERE minute BETWEEN ?1 AND ?2 AND (?3 IS NULL OR queue = ?3)
    ORDER BY minute, worker, queue, tier
);

-- name: save_minutes
-- What workers did, minute by minute. Takes a JSON array of (minute, worker, queue, tier, record as JSON text). Each is
-- replaced as a whole: a repeat changes nothing.
REPLACE INTO dibs_minutes (minute, worker, queue, tier, record)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?);

-- name: prune_stats
-- Delete old minutes. Takes the first minute to keep, limit. Reads a range of the primary key.
DELETE FROM dibs_minutes WHERE (minute, worker, queue, tier) IN (
    SELECT minute, worker, queue, tier FROM dibs_minutes WHERE minute < ?1 ORDER BY minute LIMIT ?2
);

-- name: term
-- The current term. Takes nothing. Returns a JSON array of (number, worker, expires_at), empty if there is none.
SELECT json_group_array(json_array(number, worker, expires_at)) FROM dibs_term;

-- name: lead
-- Take or renew the term. Takes worker, now, duration. Changes no row if another worker has it.
INSERT INTO dibs_term (one, number, worker, expires_at) VALUES (1, 1, ?1, ?2 + ?3)
ON CONFLICT (one) DO UPDATE SET
    number = number + iif(worker = excluded.worker AND expires_at > ?2, 0, 1),
    worker = excluded.worker,
    expires_at = excluded.expires_at
WHERE worker = excluded.worker OR expires_at <= ?2;

-- name: resign
-- End the term, so that any worker may take the next. Takes its number.
UPDATE dibs_term SET worker = '', expires_at = 0 WHERE number = ?;

-- name: end_term
-- End the term if one of these workers has it. Takes workers (JSON array).
UPDATE dibs_term SET worker = '', expires_at = 0 WHERE worker IN (SELECT value FROM json_each(?));
