-- name: begin
-- The start of every write. Takes now (NULL: the clock), whether queues are about to change, and the milliseconds that
-- may pass between statements (NULL: as set in the session). Returns the generation and now. Waits until no queue is
-- being changed (or, to change one, until there are no writes): so what is known of queues at this generation holds
-- until the transaction ends. The lock comes before the read, which is why this is a function: each of its statements
-- sees what was committed before it. While a transaction waits to change a queue, all others wait behind it, perhaps
-- for one user's long transaction: so it waits for a moment only, and must then be repeated (lock_not_available).
CREATE OR REPLACE FUNCTION {schema}.begin_{version}(
    at bigint, exclusive boolean, silence int, OUT generation bigint, OUT now bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    IF silence IS NOT NULL THEN
        PERFORM set_config('idle_in_transaction_session_timeout', silence::text, true);
    END IF;
    IF exclusive THEN
        PERFORM set_config('lock_timeout', '100ms', true);
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema_text}.queues', 0));
        PERFORM set_config('lock_timeout', patience, true);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    END IF;
    SELECT s.generation INTO generation FROM {schema}.store AS s;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
END
$$;

-- name: lock_queues
-- Lock some queues exclusively until the transaction ends. Takes their names, in order. Claims from limited queues do
-- so, and everything that moves tasks of partitions or shares; this keeps their slots, gates and turns right. A
-- transaction that has one queue waits for a moment only for the next, and for locked rows, perhaps for a user's long
-- transaction, and must then be repeated (lock_not_available): until then the queues are free.
CREATE OR REPLACE FUNCTION {schema}.lock_queues_{version}(names text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue_name text;
BEGIN
    FOREACH queue_name IN ARRAY names LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema_text}.queue ' || queue_name, 0));
        PERFORM set_config('lock_timeout', '300ms', true);
    END LOOP;
END
$$;

-- name: lock_for_claim
-- Lock queues exclusively for a claim. Takes their names, in order, now (NULL: the clock), and whether the claim serves
-- others besides. Returns those that it locked, and now. A claim from one queue waits in line. One from several waits
-- 300 ms at most, once, and leaves out locked queues: a process that stopped in the middle of a claim delays no other
-- queue. The clock is read after the wait: start tokens counted as of an earlier moment would be given twice.
CREATE OR REPLACE FUNCTION {schema}.lock_for_claim_{version}(
    names text[], at bigint, others boolean, OUT got text[], OUT now bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    may_wait boolean := true;
    queue_name text;
    queue_lock bigint;
BEGIN
    got := '{}';
    FOREACH queue_name IN ARRAY names LOOP
        queue_lock := hashtextextended('{schema_text}.queue ' || queue_name, 0);
        IF NOT others THEN
            PERFORM pg_advisory_xact_lock(queue_lock);
        ELSIF NOT pg_try_advisory_xact_lock(queue_lock) THEN
            CONTINUE WHEN NOT may_wait;
            BEGIN
                PERFORM set_config('lock_timeout', '300ms', true);
                PERFORM pg_advisory_xact_lock(queue_lock);
            EXCEPTION WHEN lock_not_available THEN
                may_wait := false;
                CONTINUE;
            END;
        END IF;
        got := got || queue_name;
    END LOOP;
    PERFORM set_config('lock_timeout', '300ms', true);
    now := coalesce(at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
END
$$;

-- name: add_tracks
-- Create queues and tracks that do not exist. Takes the names of queues with the settings of new ones, and tracks:
-- queue, name, requires (joined by spaces), lane, epoch, fair, band. A retired track is restored (its queue was deleted
-- and created again). Other processes learn of it from the next generation.
CREATE OR REPLACE FUNCTION {schema}.add_tracks_{version}(
    queue_names text[], settings bytea,
    queues text[], names text[], requirements text[], lanes int[], epochs int[], fairs boolean[], bands int[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema_text}.queues', 0));
    UPDATE {schema}.store SET generation = generation + 1;
    INSERT INTO {schema}.queues (name, state, settings, epoch)
    SELECT q, 'active', settings, 1 FROM unnest(queue_names) AS q ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.tracks (queue, name, requires, lane, epoch, fair, band)
    SELECT s.queue, s.name, string_to_array(s.requires, ' '), s.lane, s.epoch, s.fair, s.band
    FROM unnest(queues, names, requirements, lanes, epochs, fairs, bands)
        AS s (queue, name, requires, lane, epoch, fair, band)
    ON CONFLICT (queue, name, requires, lane, epoch, fair, band) DO UPDATE SET retired = false;
END
$$;
