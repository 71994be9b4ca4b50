-- What a verb in the user's own transaction begins with. Takes now (NULL: the clock). Returns generation, now, the
-- isolation of the transaction, and whether it is read-only.
SELECT
    b.generation, b.now, current_setting('transaction_isolation') AS isolation,
    current_setting('transaction_read_only') = 'on' AS read_only
FROM dibs.begin($1::bigint, false, NULL) AS b;
