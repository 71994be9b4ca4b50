-- name: chore
-- The last run of a chore. Takes its name. Returns name, record (JSON), cursor (JSON text or empty).
SELECT name, record, cursor FROM {schema}.chores WHERE name = $1;

-- name: chores
-- The last runs of all chores. Takes nothing. Returns name, record (JSON).
SELECT name, record FROM {schema}.chores;

-- name: save_chore
-- Record a run of a chore. Takes its name, the record (JSON), and where its next step starts (JSON text or empty).
INSERT INTO {schema}.chores (name, record, cursor) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET record = excluded.record, cursor = excluded.cursor;

-- name: audit
-- The newest lines of the audit log. Takes the number to begin below (NULL: the newest), how many. Returns n, entry
-- (JSON). Reads a range of the primary key.
SELECT n, entry FROM {schema}.audit
WHERE n < coalesce($1::bigint, 9223372036854775807) ORDER BY n DESC LIMIT $2::int;

-- name: add_audit
-- One line of the audit log. Takes the instant and the entry (JSON).
INSERT INTO {schema}.audit (at, entry) VALUES ($1, $2);

-- name: prune_audit
-- Delete old lines of the audit log. Takes an instant (inclusive), limit. Reads only the oldest lines.
DELETE FROM {schema}.audit WHERE n = ANY (ARRAY(SELECT n FROM {schema}.audit ORDER BY n LIMIT $2::int)) AND at <= $1::bigint;
