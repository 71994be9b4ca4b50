-- A workflow that a batch begins. Takes id, name, created_at. Repeated: it stays as it was.
INSERT OR IGNORE INTO dibs_workflows (id, name, created_at, total) VALUES (?, ?, ?, 0);
