-- name: folded_until
-- The transaction before which all changes of counts have been folded. Takes nothing. Readers of `count_changes` start
-- there: while a transaction is held, rows that were folded long ago are still in the table. They call it in a
-- subselect, so that it runs once.
CREATE OR REPLACE FUNCTION {schema}.folded_until_{version}() RETURNS xid8 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT c.folded_until FROM {schema}.chores AS c WHERE c.name = 'fold_counts' AND c.folded_by::xid = c.xmin), '0'
    );
END
$$;
