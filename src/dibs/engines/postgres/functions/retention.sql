-- name: make_day
-- A partition for the tasks that end on a day. Takes the day. Returns whether it was created: not if it exists, if
-- tasks of that day are in the default partition, or if the finished tasks are being read. Runs with the rights of its
-- owner, for every role that may write there: workers need not own tables. Locks the finished tasks for a moment;
-- lock_timeout is the caller's.
CREATE OR REPLACE FUNCTION {schema}.make_day_{version}(day int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, '{schema_text}.finished', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for the finished tasks';
    END IF;
    EXECUTE format(
        'CREATE TABLE %1$s_%2$s PARTITION OF %1$s FOR VALUES FROM (%2$s) TO (%3$s)', '{schema_text}.finished', day, day + 1
    );
    RETURN true;
EXCEPTION WHEN check_violation OR duplicate_table OR lock_not_available THEN
    RETURN false;
END
$$;

-- name: drop_day
-- Drop the tasks that ended on a day, all at once. Takes the day. Returns false if they are being read. Runs with the
-- rights of its owner, for every role that may delete there: workers need not own tables. Locks the finished tasks for
-- a moment; lock_timeout is the caller's.
CREATE OR REPLACE FUNCTION {schema}.drop_day_{version}(day int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, '{schema_text}.finished', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for the finished tasks';
    END IF;
    EXECUTE format('DROP TABLE %s_%s', '{schema_text}.finished', day);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
