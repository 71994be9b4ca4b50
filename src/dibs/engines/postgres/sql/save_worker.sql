-- A worker's sign of life. Takes id, state, expires_at, record (JSON).
INSERT INTO dibs.workers (id, state, expires_at, record) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at, record = excluded.record;
