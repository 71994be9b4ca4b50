-- name: begin
-- The start of every write. Takes now (NULL: the clock), whether queues are about to change, the milliseconds that may
-- pass between statements (NULL: as set in the session). Returns generation, now.
SELECT * FROM {schema}.begin_{version}($1, $2, $3);

-- name: join
-- The start of a verb in the user's own transaction. Takes now (NULL: the clock). Returns generation, now, the
-- isolation of the transaction, and whether it is read-only.
SELECT
    b.generation, b.now, current_setting('transaction_isolation') AS isolation,
    current_setting('transaction_read_only') = 'on' AS read_only
FROM {schema}.begin_{version}($1::bigint, false, NULL) AS b;

-- name: begin_read
-- The start of every read. Takes now (NULL: the clock). Returns generation, now.
SELECT
    generation,
    coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) AS now
FROM {schema}.store;

-- name: notify
-- Notify when the transaction commits. Takes the channel, messages.
SELECT pg_notify($1::text, m.message) FROM unnest($2::text[]) AS m (message);

-- name: layout
-- What exists of a store. Takes the schema, the names of functions. Returns whether the schema exists, its tables and
-- views, how many of the functions it has. Reads only the catalogs, which every role may.
SELECT
    EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS has_schema,
    (
        SELECT array_agg(c.relname::text) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')
    ) AS tables,
    (
        SELECT count(DISTINCT p.proname) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = $1 AND p.proname = ANY ($2::text[])
    ) AS functions;

-- name: use_version
-- Record that the functions of this version are in use. Takes nothing. Writes at most once a day; workers do the same
-- with every heartbeat (`save_worker`).
UPDATE {schema}.code_versions SET used_at = now()
WHERE version = '{version}' AND used_at < now() - interval '1 day';

-- name: add_version
-- Record that the functions of this version were created. Takes nothing.
INSERT INTO {schema}.code_versions (version, used_at) VALUES ('{version}', now())
ON CONFLICT (version) DO UPDATE SET used_at = excluded.used_at;

-- name: drop_old_versions
-- Drop the functions of versions that no process has used for 30 days, as far as this role may. Takes nothing. A
-- version without a record stays: its last use is unknown.
DO $$
DECLARE
    old record;
BEGIN
    FOR old IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc AS p
        JOIN {schema}.code_versions AS v ON v.version = right(p.proname, 8)
        WHERE p.pronamespace = '{schema_text}'::regnamespace AND p.proname ~ '_[0-9a-f]{8}$'
          AND v.used_at < now() - interval '30 days' AND pg_has_role(p.proowner, 'USAGE')
    LOOP
        EXECUTE format('DROP FUNCTION %s', old.signature);
    END LOOP;
END
$$;

-- name: identity
-- The random id of this store. Takes nothing. Returns a text.
SELECT identity FROM {schema}.store;

-- name: next_generation
-- Make other processes read queues and tracks again. Takes nothing.
UPDATE {schema}.store SET generation = generation + 1;

-- name: catalog
-- All queues, tracks and subscribers. Takes nothing. Returns the generation, an array of (name, state, settings, epoch),
-- an array of (track, queue, name, requires, lane, epoch, fair, band, retired), an array of (subscriber, until, watch)
-- and now. Scans three small tables; run only when the generation has changed.
SELECT
    generation,
    (SELECT array_agg(ROW(name, state, settings, epoch)) FROM {schema}.queues) AS queues,
    (
        SELECT array_agg(ROW(track, queue, name, requires, lane, epoch, fair, band, retired)) FROM {schema}.tracks
    ) AS tracks,
    (SELECT array_agg(ROW(subscriber, until, watch)) FROM {schema}.watches) AS watches,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now
FROM {schema}.store;

-- name: add_tracks
-- Create queues and tracks that do not exist. See functions/queues.sql.
SELECT {schema}.add_tracks_{version}(
    $1::text[], $2::bytea, $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::boolean[], $9::int[]
);

-- name: retire
-- Retire tracks in which nothing waits or ever will. Takes tracks.
UPDATE {schema}.tracks SET retired = true WHERE track = ANY ($1::int[]);

-- name: lock_queues
-- Lock some queues exclusively until the transaction ends. Takes their names, in order.
SELECT {schema}.lock_queues_{version}($1::text[]);

-- name: save_queue
-- Save a queue. Takes name, state, settings (JSON), epoch. From now on, what runs in it is counted: it may have limits. No
-- claim that does not count is under way: the lock on settings is held.
WITH counted AS (
    UPDATE {schema}.running SET counted = true
    WHERE NOT counted AND track IN (SELECT s.track FROM {schema}.tracks AS s WHERE s.queue = $1)
)
INSERT INTO {schema}.queues (name, state, settings, epoch) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET state = excluded.state, settings = excluded.settings, epoch = excluded.epoch;

-- name: delete_queue
-- Delete a queue, its buckets, shares and turns. Takes its name. Its tracks stay: ended tasks name them.
WITH buckets AS (
    DELETE FROM {schema}.buckets WHERE queue = $1
), shares AS (
    DELETE FROM {schema}.shares WHERE queue = $1
), turns AS (
    DELETE FROM {schema}.turns WHERE track IN (SELECT s.track FROM {schema}.tracks AS s WHERE s.queue = $1 AND s.fair)
)
DELETE FROM {schema}.queues WHERE name = $1;
