-- A workflow that a batch begins. Takes id, name, created_at. Repeated: it stays as it was.
INSERT INTO dibs.workflows (id, name, created_at, total) VALUES ($1::uuid, $2, $3, 0) ON CONFLICT DO NOTHING;
