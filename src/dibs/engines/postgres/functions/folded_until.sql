-- The transaction before which all changes of counts have been added up. Takes nothing. Readers of `deltas` begin
-- there: under a held transaction, rows that were added up long ago are still in the table. They ask in a subselect, so
-- that they ask once.
CREATE OR REPLACE FUNCTION dibs.folded_until() RETURNS xid8 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT c.folded_until FROM dibs.chores AS c WHERE c.name = 'fold_counts' AND c.folded_by::xid = c.xmin), '0'
    );
END
$$;
