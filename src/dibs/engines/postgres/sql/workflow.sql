-- One workflow. Takes its id. Returns id, name, created_at, total.
SELECT id, name, created_at, total FROM dibs.workflows WHERE id = $1::uuid;
