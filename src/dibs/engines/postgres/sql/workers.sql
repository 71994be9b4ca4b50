-- name: worker
-- One worker, locked. Takes its id. Returns state, record (JSON).
SELECT state, record FROM {schema}.workers WHERE id = $1 FOR UPDATE;

-- name: workers
-- All workers by id. Takes nothing. Returns id, state, record (JSON).
SELECT id, state, record FROM {schema}.workers ORDER BY id;

-- name: save_worker
-- A worker's sign of life. Takes id, state, expires_at, record (JSON), since when sessions last at the server where its
-- process holds its lock, or NULL.
WITH used AS (
    UPDATE {schema}.code_versions SET used_at = now()
    WHERE version = '{version}' AND used_at < now() - interval '1 day'
)
INSERT INTO {schema}.workers (id, state, expires_at, record, presence) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, expires_at = excluded.expires_at, record = excluded.record, presence = excluded.presence;

-- name: save_presence
-- Note whether a worker's process holds its lock. Takes the worker, since when sessions last at its server, or NULL.
UPDATE {schema}.workers SET presence = $2::timestamptz WHERE id = $1 AND presence IS DISTINCT FROM $2::timestamptz;

-- name: hold
-- Hold a worker's lock for as long as this session lasts. Takes the worker's id. Returns since when sessions last at
-- this server, and whether the session is really ours: the process that serves us is the one that greeted us, whose
-- number is the second parameter. Who looks for absent workers (`absent`) has the lock, which he takes alone, for
-- a moment only.
--
-- A crash ends all sessions, but not the postmaster. The statistics are thrown away then, and say when that was. People
-- may also reset them by hand: then nobody is missed until he has taken his lock once more, which he does now and then.
SELECT
    greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) AS since,
    CASE WHEN pg_backend_pid() = $2::int
    THEN pg_advisory_lock_shared(hashtextextended('{schema_text}.workers ' || $1::text, 0)) IS NOT NULL END AS is_ours;

-- name: absent
-- Workers whose process should hold their lock at this server (`hold`), and does not. Takes nothing. Returns ids.
-- Nobody else holds a lock that can be taken alone; it is given back when the transaction ends. Looks at as many locks
-- as there are live workers, each of which has a session of its own; asks for none before all other conditions hold
-- (hence MATERIALIZED).
WITH expected AS MATERIALIZED (
    SELECT id FROM {schema}.workers
    WHERE state <> 'dead' AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('{schema_text}.workers ' || id, 0)) ORDER BY id;

-- name: still_absent
-- Those of some workers who are still absent (see `absent`), for as long as this transaction lasts: meanwhile none of
-- them can come back, and nobody else sees to their tasks. Takes ids. Returns ids.
WITH expected AS MATERIALIZED (
    SELECT id FROM {schema}.workers
    WHERE id = ANY ($1::text[]) AND state <> 'dead'
      AND presence = greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
)
SELECT id FROM expected WHERE pg_try_advisory_xact_lock(hashtextextended('{schema_text}.workers ' || id, 0)) ORDER BY id;

-- name: set_worker_state
-- Tell a worker what to do. Takes the state and the worker's id.
UPDATE {schema}.workers SET state = $1 WHERE id = $2;

-- name: delete_worker
-- A worker has left in good order. Takes its id.
DELETE FROM {schema}.workers WHERE id = $1;

-- name: bury_workers
-- Mark workers dead whose record has expired by an instant, and some others. Takes it, the others. Returns ids.
UPDATE {schema}.workers SET state = 'dead', presence = NULL
WHERE state <> 'dead' AND (expires_at <= $1::bigint OR id = ANY ($2::text[])) RETURNING id;

-- name: prune_workers
-- Forget workers that died long ago. Takes the instant they must have died before (inclusive), how many.
DELETE FROM {schema}.workers
WHERE id = ANY (ARRAY(SELECT id FROM {schema}.workers WHERE state = 'dead' AND expires_at <= $1::bigint LIMIT $2::int));

-- name: minutes
-- What workers did. Takes the first and last minute, and a queue or NULL for all. Returns minutes and records (JSON),
-- oldest first.
SELECT minute, record FROM {schema}.minutes
WHERE minute BETWEEN $1::bigint AND $2::bigint AND ($3::text IS NULL OR queue = $3)
ORDER BY minute, worker, queue, tier;

-- name: save_minutes
-- What workers did, minute by minute. Takes minutes, workers, queues, tiers, records (JSON). Written whole: a repeat
-- changes nothing.
INSERT INTO {schema}.minutes (minute, worker, queue, tier, record)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[])
ON CONFLICT (minute, worker, queue, tier) DO UPDATE SET record = excluded.record;

-- name: prune_stats
-- Forget old minutes. Takes the first minute to keep, how many. Reads a range of the primary key.
DELETE FROM {schema}.minutes AS m USING (
    SELECT minute, worker, queue, tier FROM {schema}.minutes WHERE minute < $1::bigint ORDER BY minute LIMIT $2::int
) AS old
WHERE (m.minute, m.worker, m.queue, m.tier) = (old.minute, old.worker, old.queue, old.tier);

-- name: term
-- Who leads, for as long as this transaction lasts. Takes nothing. Returns number, worker, or no row.
SELECT number, worker FROM {schema}.term FOR SHARE;

-- name: lead
-- Take or renew the term. Takes worker, now, how long. Returns number, worker, expires_at; no row if somebody else
-- has it.
INSERT INTO {schema}.term AS t (one, number, worker, expires_at) VALUES (1, 1, $1, $2::bigint + $3::bigint)
ON CONFLICT (one) DO UPDATE SET
    number = t.number + CASE WHEN t.worker = excluded.worker AND t.expires_at > $2::bigint THEN 0 ELSE 1 END,
    worker = excluded.worker,
    expires_at = excluded.expires_at
WHERE t.worker = excluded.worker OR t.expires_at <= $2::bigint
RETURNING number, worker, expires_at;

-- name: resign
-- Give the term back, so that anyone may take the next. Takes its number.
UPDATE {schema}.term SET worker = '', expires_at = 0 WHERE number = $1;

-- name: end_term
-- If one of these workers leads, anyone may take the next term. Takes workers.
UPDATE {schema}.term SET worker = '', expires_at = 0 WHERE worker = ANY ($1::text[]);
