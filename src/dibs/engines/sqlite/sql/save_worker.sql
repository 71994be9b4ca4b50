-- A worker's sign of life. Takes id, state, expires_at, presence (NULL: as before), record (JSON).
INSERT INTO dibs_workers (id, state, expires_at, presence, record) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state,
    expires_at = excluded.expires_at,
    presence = coalesce(excluded.presence, presence),
    record = excluded.record;
