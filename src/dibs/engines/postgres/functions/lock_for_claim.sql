-- Have queues to oneself for a claim. Takes their names, in order, now (NULL: the clock), and whether the claim serves
-- others besides. Returns those that it got, and now. A claim from one queue waits in line. One from several waits 300 ms
-- at most, once, and leaves out what somebody else has: who stopped in the middle of a claim holds up no other queue. The
-- clock is read after the wait: start tokens that were counted as of an earlier moment would be given again.
CREATE OR REPLACE FUNCTION dibs.lock_for_claim(names text[], at bigint, others boolean, OUT got text[], OUT now bigint)
LANGUAGE plpgsql AS $$
DECLARE
    may_wait boolean := true;
    queue_name text;
    queue_lock bigint;
BEGIN
    got := '{}';
    FOREACH queue_name IN ARRAY names LOOP
        queue_lock := hashtextextended('dibs.queue ' || queue_name, 0);
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
