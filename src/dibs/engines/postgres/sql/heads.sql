-- Where the pending tasks of some streams begin, whatever dead entries lie before them. Takes streams. Returns stream,
-- rank (NULL: there are none), and how long it has taken so far. Reads `pending` from the beginning of each stream.
SELECT
    s.stream, h.rank, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS took
FROM unnest($1::int[]) AS s (stream)
LEFT JOIN LATERAL (
    SELECT t.rank FROM dibs.tasks AS t
    WHERE t.stream = s.stream AND t.share = '' AND t.state = 'pending' AND t.gate < 2
    ORDER BY t.stream, t.share, t.rank, t.id LIMIT 1
) AS h ON true;
