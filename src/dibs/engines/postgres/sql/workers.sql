-- name: worker
-- One worker, locked. Takes its id. Returns id, state, record (JSON).
SELECT id, state, record FROM {schema}.workers WHERE id = $1 FOR UPDATE;

-- name: workers
-- All workers by id. Takes nothing. Returns id, state, record (JSON).
SELECT id, state, record FROM {schema}.workers ORDER BY id;

-- name: save_worker
-- Save a heartbeat. Takes id, state, expires_at, since when sessions last at the server where the worker's process holds
-- its lock, or NULL, and the record (JSON).
WITH used AS (
    UPDATE {schema}.code_versions SET used_at = now()
    WHERE version = '{version}' AND used_at < now() - interval '1 day'
)
INSERT INTO {schema}.workers (id, state, expires_at, presence, record) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, expires_at = excluded.expires_at, presence = excluded.presence, record = excluded.record;

-- name: save_presence
-- Save whether a worker's process holds its lock. Takes the worker, since when sessions last at its server, or NULL.
UPDATE {schema}.workers SET presence = $2::timestamptz WHERE id = $1 AND presence IS DISTINCT FROM $2::timestamptz;

-- name: hold
-- Hold a worker's lock for as long as this session lasts. Takes the worker's id and the process number of the server
-- that this connection was opened with. Returns since when sessions last at this server, and whether the session is
-- really ours: the same process still serves it. A check for absent workers (`absent`) has the lock, exclusively, for a
-- moment only.
--
-- A crash ends all sessions, but not the postmaster. The server then discards its statistics, and records when. People
-- may also reset them: then no worker counts as absent until it has taken its lock once more, which it does regularly.
SELECT
    greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) AS since,
    CASE WHEN pg_backend_pid() = $2::int
    THEN pg_advisory_lock_shared(hashtextextended('{schema_text}.workers ' || $1::text, 0)) IS NOT NULL END AS is_ours;

-- name: absent
-- Workers whose process should hold their lock at this server (`hold`), and does not. Takes nothing. Returns ids. A
-- lock that can be taken exclusively is not held; it is released when the transaction ends. Tests as many locks as
-- there are live workers, each of which has a session of its own; tests none before all other conditions hold (hence
-- MATERIALIZED).
WITH expected AS MATERIALIZED (
    SELECT id FROM {schema}.workers
    WHERE state <> 'dead' AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('{schema_text}.workers ' || id, 0)) ORDER BY id;

-- name: still_absent
-- Those of some workers that are still absent (see `absent`). Until this transaction ends none of them can come back,
-- and no other process takes back their tasks. Takes ids. Returns ids.
WITH expected AS MATERIALIZED (
    SELECT id FROM {schema}.workers
    WHERE id = ANY ($1::text[]) AND state <> 'dead'
      AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('{schema_text}.workers ' || id, 0)) ORDER BY id;

-- name: set_worker_state
-- Set the state that a worker must obey. Takes the state and the worker's id.
UPDATE {schema}.workers SET state = $1 WHERE id = $2;

-- name: delete_worker
-- Delete a worker that has shut down cleanly. Takes its id.
DELETE FROM {schema}.workers WHERE id = $1;

-- name: expired_workers
-- Workers to mark dead, locked. Takes by when their record has expired, and ids of absent ones. Returns ids.
SELECT id FROM {schema}.workers
WHERE state <> 'dead' AND (expires_at <= $1::bigint OR id = ANY ($2::text[])) ORDER BY id FOR UPDATE;

-- name: bury_workers
-- Mark workers dead. Takes ids. Their locks are no longer expected.
UPDATE {schema}.workers SET state = 'dead', presence = NULL WHERE id = ANY ($1::text[]);

-- name: prune_workers
-- Delete workers that died long ago. Takes the instant they must have died before (inclusive), limit.
DELETE FROM {schema}.workers
WHERE id = ANY (ARRAY(SELECT id FROM {schema}.workers WHERE state = 'dead' AND expires_at <= $1::bigint LIMIT $2::int));

-- name: minutes
-- What workers did. Takes the first and last minute, and a queue or NULL for all. Returns minutes and records (JSON),
-- oldest first.
SELECT minute, record FROM {schema}.minutes
WHERE minute BETWEEN $1::bigint AND $2::bigint AND ($3::text IS NULL OR queue = $3)
ORDER BY minute, worker, queue, tier;

-- name: save_minutes
-- What workers did, minute by minute. Takes minutes, workers, queues, tiers, records (JSON). Each is replaced as a
-- whole: a repeat changes nothing.
INSERT INTO {schema}.minutes (minute, worker, queue, tier, record)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[])
ON CONFLICT (minute, worker, queue, tier) DO UPDATE SET record = excluded.record;

-- name: prune_stats
-- Delete old minutes. Takes the first minute to keep, limit. Reads a range of the primary key.
DELETE FROM {schema}.minutes AS m USING (
    SELECT minute, worker, queue, tier FROM {schema}.minutes WHERE minute < $1::bigint ORDER BY minute LIMIT $2::int
) AS old
WHERE (m.minute, m.worker, m.queue, m.tier) = (old.minute, old.worker, old.queue, old.tier);

-- name: term
-- The current term, locked until this transaction ends. Takes nothing. Returns number, worker, expires_at, or no
-- row.
SELECT number, worker, expires_at FROM {schema}.term FOR SHARE;

-- name: lead
-- Take or renew the term. Takes worker, now, duration. Changes no row if another worker has it.
INSERT INTO {schema}.term AS t (one, number, worker, expires_at) VALUES (1, 1, $1, $2::bigint + $3::bigint)
ON CONFLICT (one) DO UPDATE SET
    number = t.number + CASE WHEN t.worker = excluded.worker AND t.expires_at > $2::bigint THEN 0 ELSE 1 END,
    worker = excluded.worker,
    expires_at = excluded.expires_at
WHERE t.worker = excluded.worker OR t.expires_at <= $2::bigint;

-- name: resign
-- End the term, so that any worker may take the next. Takes its number.
UPDATE {schema}.term SET worker = '', expires_at = 0 WHERE number = $1;

-- name: end_term
-- End the term if one of these workers has it. Takes workers.
UPDATE {schema}.term SET worker = '', expires_at = 0 WHERE worker = ANY ($1::text[]);
