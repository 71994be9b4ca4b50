-- Take or renew the term. Takes worker, now, how long. Returns number, worker, expires_at; no row if somebody else
-- has it.
INSERT INTO dibs.term AS t (one, number, worker, expires_at) VALUES (1, 1, $1, $2::bigint + $3::bigint)
ON CONFLICT (one) DO UPDATE SET
    number = t.number + CASE WHEN t.worker = excluded.worker AND t.expires_at > $2::bigint THEN 0 ELSE 1 END,
    worker = excluded.worker,
    expires_at = excluded.expires_at
WHERE t.worker = excluded.worker OR t.expires_at <= $2::bigint
RETURNING number, worker, expires_at;
