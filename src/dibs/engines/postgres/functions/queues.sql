-- name: begin
-- What every write begins with. Takes now (NULL: the clock), whether queues are about to change, and for how many
-- milliseconds we may be silent until the transaction ends (NULL: as the session has it). Returns the generation and
-- now. Waits until no queue is being changed (or, to change one, until nobody writes): so what is known of queues at
-- this generation holds until the transaction ends. The lock comes before the look, which is why this is a function:
-- each of its statements sees what has been committed by then. As long as somebody waits in line to change a queue,
-- everybody else waits behind it, be it for one user's long transaction: so it waits a moment only, and then has to
-- come again (lock_not_available).
CREATE OR REPLACE FUNCTION {schema}.begin_{version}(at bigint, exclusive boolean, silence int, OUT generation bigint, OUT now bigint)
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
-- Have some queues to oneself until the transaction ends. Takes their names, in order. Claims from limited queues do
-- so, and whatever moves tasks of partitions or shares; it keeps their slots, gates and turns right. Whoever has one
-- waits a moment only for the next, and for rows that others hold, be it for a user's long transaction, and then has to
-- come again (lock_not_available): meanwhile the queues are free.
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
-- Have queues to oneself for a claim. Takes their names, in order, now (NULL: the clock), and whether the claim serves
-- others besides. Returns those that it got, and now. A claim from one queue waits in line. One from several waits 300
-- ms at most, once, and leaves out what somebody else has: who stopped in the middle of a claim holds up no other
-- queue. The clock is read after the wait: start tokens that were counted as of an earlier moment would be given again.
CREATE OR REPLACE FUNCTION {schema}.lock_for_claim_{version}(names text[], at bigint, others boolean, OUT got text[], OUT now bigint)
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
-- Make queues and tracks that there are not. Takes the names of queues with the settings of new ones, and tracks:
-- queue, name, requires (joined by spaces), lane, epoch, fair, band. One that has retired is brought back (a queue
-- that was deleted and made anew). Others learn of it by the next generation.
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
