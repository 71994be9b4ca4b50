-- name: chore
-- The last run of a chore. Takes its name. Returns name, record (JSON), cursor (JSON).
SELECT name, record, cursor FROM {schema}.chores WHERE name = $1;

-- name: chores
-- The last runs of all chores. Takes nothing. Returns name, record (JSON).
SELECT name, record FROM {schema}.chores;

-- name: save_chore
-- Record a run of a chore. Takes its name and the record (JSON). The cursor stays.
INSERT INTO {schema}.chores (name, record) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET record = excluded.record;

-- name: save_cursor
-- Save where the next step of a chore starts. Takes its name and the cursor (JSON) or NULL.
INSERT INTO {schema}.chores (name, record, cursor)
VALUES ($1, convert_to(json_build_object('name', $1::text)::text, 'UTF8'), $2)
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor;

-- name: audit
-- The newest lines of the audit log. Takes how many. Returns n, entry (JSON).
SELECT n, entry FROM {schema}.audit ORDER BY n DESC LIMIT $1::int;

-- name: add_audit
-- One line of the audit log. Takes the instant and the entry (JSON).
INSERT INTO {schema}.audit (at, entry) VALUES ($1, $2);

-- name: prune_audit
-- Delete old lines of the audit log. Takes an instant (inclusive), limit. Reads only the oldest lines.
DELETE FROM {schema}.audit WHERE n = ANY (ARRAY(SELECT n FROM {schema}.audit ORDER BY n LIMIT $2::int)) AND at <= $1::bigint;
