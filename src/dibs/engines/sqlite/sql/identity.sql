-- What tells this store from all others. Takes nothing. Returns one row.
SELECT identity FROM dibs_store;
