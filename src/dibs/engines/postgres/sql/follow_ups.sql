-- name: follow_ups
-- Stored follow-ups, oldest first, locked, without those that are locked already. Takes limit, numbers to skip. Returns
-- n, follow-up (JSON).
SELECT n, follow_up FROM {schema}.follow_ups WHERE (n IN (SELECT unnest($2::bigint[]))) IS NOT TRUE
ORDER BY n LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: first_follow_ups
-- Stored follow-ups, oldest first. Takes limit. Returns n, follow-up (JSON).
SELECT n, follow_up FROM {schema}.follow_ups ORDER BY n LIMIT $1::int;

-- name: has_follow_ups
-- Whether follow-ups are left. Takes numbers to skip. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM {schema}.follow_ups WHERE (n IN (SELECT unnest($1::bigint[]))) IS NOT TRUE);

-- name: add_follow_ups
-- Store unfinished follow-ups. Takes follow-ups (JSON); they get the next numbers, in order.
INSERT INTO {schema}.follow_ups (follow_up)
SELECT new.follow_up FROM unnest($1::bytea[]) WITH ORDINALITY AS new (follow_up, k) ORDER BY new.k;

-- name: save_follow_ups
-- Save how far follow-ups have come. Takes numbers, follow-ups (JSON).
UPDATE {schema}.follow_ups AS e SET follow_up = new.follow_up
FROM unnest($1::bigint[], $2::bytea[]) AS new (n, follow_up) WHERE e.n = new.n;

-- name: delete_follow_ups
-- Delete finished follow-ups. Takes numbers.
DELETE FROM {schema}.follow_ups WHERE n = ANY ($1::bigint[]);
