-- A worker's sign of life. Takes id, state, expires_at, record (JSON), since when sessions last at the server where its
-- process holds its lock, or NULL.
INSERT INTO dibs.workers (id, state, expires_at, record, presence) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, expires_at = excluded.expires_at, record = excluded.record, presence = excluded.presence;
