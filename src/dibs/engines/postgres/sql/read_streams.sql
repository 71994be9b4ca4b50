-- A stretch of some streams in claim order. Takes streams, shares, ranks and ids to begin after, how many of each,
-- whether gated ones too. Returns rank, id, ready_at, stream, share, partition. Reads ranges of `pending` and, if
-- asked, of `gated`.
SELECT h.rank, h.id, h.ready_at, s.stream, s.share, h.partition
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::uuid[]) AS s (stream, share, rank, id)
CROSS JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT t.rank, t.id, t.ready_at, t.partition FROM dibs.tasks AS t
            WHERE t.stream = s.stream AND t.share = s.share AND t.state = 'pending' AND t.gate < 2
              AND (t.rank, t.id) > (s.rank, s.id)
            ORDER BY t.rank, t.id LIMIT $5::int
        )
        UNION ALL
        (
            SELECT t.rank, t.id, t.ready_at, t.partition FROM dibs.tasks AS t
            WHERE $6::boolean AND t.stream = s.stream AND t.share = s.share AND t.state = 'pending' AND t.gate = 2
              AND (t.rank, t.id) > (s.rank, s.id)
            ORDER BY t.rank, t.id LIMIT $5::int
        )
    ) AS both_kinds
    ORDER BY rank, id LIMIT $5::int
) AS h
ORDER BY s.stream, s.share, h.rank, h.id;
