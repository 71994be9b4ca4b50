-- What every read begins with. Takes now (NULL: the clock). Returns generation, now.
SELECT
    generation,
    coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) AS now
FROM dibs.store;
