-- Drop the tasks that ended on a day, all at once. Takes the day. Returns false if somebody is reading them just now. With the rights of its owner, for whoever may delete
-- there: workers need not own tables. Locks the finished tasks for a moment; lock_timeout is the caller's.
CREATE OR REPLACE FUNCTION dibs.drop_day(day int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'dibs.finished', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for the finished tasks';
    END IF;
    EXECUTE format('DROP TABLE %s_%s', 'dibs.finished', day);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
