-- name: follow_ups
-- Stored follow-ups, oldest first. Takes limit, numbers to skip (JSON array). Returns a JSON array of (n, follow-up as
-- JSON text).
SELECT json_group_array(json_array(n, follow_up))
FROM (
    SELECT n, follow_up FROM dibs_follow_ups
    WHERE n NOT IN (SELECT value FROM json_each(?2)) ORDER BY n LIMIT ?1
);

-- name: save_follow_ups
-- Follow-ups that have come further. Takes a JSON array of (n, follow-up as JSON text).
REPLACE INTO dibs_follow_ups (n, follow_up) SELECT value ->> 0, value ->> 1 FROM json_each(?);

-- name: add_follow_ups
-- Follow-ups that are not finished. Takes them (JSON array of JSON texts); they get the next numbers, in order.
INSERT INTO dibs_follow_ups (follow_up) SELECT value FROM json_each(?);

-- name: delete_follow_ups
-- Delete finished follow-ups. Takes numbers (JSON array).
DELETE FROM dibs_follow_ups WHERE n IN (SELECT value FROM json_each(?));
