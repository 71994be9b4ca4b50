-- name: chore
-- The last run of a chore. Takes its name. Returns a JSON array of (name, record and cursor as JSON text), empty if
-- it has not run.
SELECT json_group_array(json_array(name, record, cursor)) FROM dibs_chores WHERE name = ?;

-- name: chores
-- The last runs of all chores. Takes nothing. Returns a JSON array of (name, record as JSON text).
SELECT json_group_array(json_array(name, record)) FROM dibs_chores;

-- name: save_chore
-- Record a run of a chore. Takes its name, the record (JSON), and where its next step starts (JSON text or empty).
REPLACE INTO dibs_chores (name, record, cursor) VALUES (?, ?, ?);

-- name: audit
-- The newest lines of the audit log. Takes the number to begin below (NULL: the newest), how many. Returns a JSON array
-- of (n, entry as JSON text). Reads a range of the primary key.
SELECT json_group_array(json_array(n, entry))
FROM (
    SELECT n, entry FROM dibs_audit
    WHERE n < coalesce(?1, 9223372036854775807) ORDER BY n DESC LIMIT ?2
);

-- name: add_audit
-- One line of the audit log. Takes the instant and the entry (JSON text).
INSERT INTO dibs_audit (at, entry) VALUES (?, ?);

-- name: prune_audit
-- Delete old lines of the audit log. Takes an instant (inclusive), limit. Reads only the oldest lines.
DELETE FROM dibs_audit
WHERE n IN (SELECT n FROM dibs_audit ORDER BY n LIMIT ?2) AND at <= ?1;
