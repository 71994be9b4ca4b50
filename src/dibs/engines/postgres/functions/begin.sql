-- What every write begins with. Takes now (NULL: the clock), whether queues are about to change. Returns the
-- generation and now. Waits until no queue is being changed (or, to change one, until nobody writes): so what is
-- known of queues at this generation holds until the transaction ends. The lock comes before the look, which is why
-- this is a function: each of its statements sees what has been committed by then.
CREATE OR REPLACE FUNCTION dibs.begin(at bigint, exclusive boolean, OUT generation bigint, OUT now bigint)
LANGUAGE plpgsql AS $$
BEGIN
    IF exclusive THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('dibs.queues', 0));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('dibs.queues', 0));
    END IF;
    SELECT s.generation INTO generation FROM dibs.store AS s;
    now := coalesce(at, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
END
$$;
