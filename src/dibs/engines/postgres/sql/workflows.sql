-- Workflows downwards by id. Takes the id to begin below (NULL: the newest), how many. Returns id, name, created_at,
-- total.
SELECT id, name, created_at, total FROM dibs.workflows
WHERE id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY id DESC LIMIT $2::int;
