-- name: folded_until
-- The transaction before which all changes of counts have been added up. Takes nothing. Readers of `count_changes`
-- begin there: under a held transaction, rows that were added up long ago are still in the table. They ask in a
-- subselect, so that they ask once.
CREATE OR REPLACE FUNCTION {schema}.folded_until_{version}() RETURNS xid8 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT c.folded_until FROM {schema}.chores AS c WHERE c.name = 'fold_counts' AND c.folded_by::xid = c.xmin), '0'
    );
END
$$;
