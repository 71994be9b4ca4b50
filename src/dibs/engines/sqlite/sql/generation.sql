-- The generation of queues and streams. Takes nothing. Returns one row.
SELECT generation FROM dibs_store;
