-- A partition for the tasks that end on a day. Takes the day. Returns whether it was made: not if somebody was faster,
-- if tasks of that day are in the last partition already, or if somebody is reading the finished tasks just now. With the rights of its owner, for whoever may write there:
-- workers need not own tables. Locks the finished tasks for a moment; lock_timeout is the caller's.
CREATE OR REPLACE FUNCTION dibs.make_day(day int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'dibs.finished', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for the finished tasks';
    END IF;
    EXECUTE format(
        'CREATE TABLE %1$s_%2$s PARTITION OF %1$s FOR VALUES FROM (%2$s) TO (%3$s)', 'dibs.finished', day, day + 1
    );
    RETURN true;
EXCEPTION WHEN check_violation OR duplicate_table OR lock_not_available THEN
    RETURN false;
END
$$;
