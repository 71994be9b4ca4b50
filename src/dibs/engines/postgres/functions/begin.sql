-- What every write begins with. Takes now (NULL: the clock), whether queues are about to change, and for how many
-- milliseconds we may be silent until the transaction ends (NULL: as the session has it). Returns the generation and
-- now. Waits until no queue is being changed (or, to change one, until nobody writes): so what is known of queues at
-- this generation holds until the transaction ends. The lock comes before the look, which is why this is a function:
-- each of its statements sees what has been committed by then. As long as somebody waits in line to change a queue,
-- everybody else waits behind it, be it for one user's long transaction: so it waits a moment only, and then has to
-- come again (lock_not_available).
CREATE OR REPLACE FUNCTION dibs.begin(at bigint, exclusive boolean, silence int, OUT generation bigint, OUT now bigint)
LANGUAGE plpgsql AS $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    IF silence IS NOT NULL THEN
        PERFORM set_config('idle_in_transaction_session_timeout', silence::text, true);
    END IF;
    IF exclusive THEN
        PERFORM set_config('lock_timeout', '100ms', true);
        PERFORM pg_advisory_xact_lock(hashtextextended('dibs.queues', 0));
        PERFORM set_config('lock_timeout', patience, true);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('dibs.queues', 0));
    END IF;
    SELECT s.generation INTO generation FROM dibs.store AS s;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
END
$$;
