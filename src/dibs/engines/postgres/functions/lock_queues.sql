-- Have some queues to oneself until the transaction ends. Takes their names, in order. Claims from limited queues do
-- so, and whatever moves tasks of partitions or shares; it keeps their slots, gates and turns right. Whoever has one
-- waits a moment only for the next, and for rows that others hold, be it for a user's long transaction, and then has to
-- come again (lock_not_available): meanwhile the queues are free.
CREATE OR REPLACE FUNCTION dibs.lock_queues(names text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue_name text;
BEGIN
    FOREACH queue_name IN ARRAY names LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('dibs.queue ' || queue_name, 0));
        PERFORM set_config('lock_timeout', '300ms', true);
    END LOOP;
END
$$;
