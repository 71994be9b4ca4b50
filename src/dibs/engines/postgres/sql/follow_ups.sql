-- name: follow_ups
-- What is left to be followed up, oldest first, but for what others are at. Takes how many, numbers to pass over.
-- Returns n, follow-up (JSON).
SELECT n, follow_up FROM {schema}.follow_ups WHERE (n IN (SELECT unnest($2::bigint[]))) IS NOT TRUE
ORDER BY n LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: first_follow_ups
-- What is left to be followed up, oldest first. Takes how many. Returns n, follow-up (JSON).
SELECT n, follow_up FROM {schema}.follow_ups ORDER BY n LIMIT $1::int;

-- name: has_follow_ups
-- Whether anything is left to be followed up. Takes numbers to pass over. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM {schema}.follow_ups WHERE (n IN (SELECT unnest($1::bigint[]))) IS NOT TRUE);

-- name: add_follow_ups
-- Follow-ups that are not finished. Takes follow-ups (JSON); they get the next numbers, in order.
INSERT INTO {schema}.follow_ups (follow_up)
SELECT new.follow_up FROM unnest($1::bytea[]) WITH ORDINALITY AS new (follow_up, k) ORDER BY new.k;

-- name: save_follow_ups
-- Follow-ups that have come further. Takes numbers, follow-ups (JSON).
UPDATE {schema}.follow_ups AS e SET follow_up = new.follow_up
FROM unnest($1::bigint[], $2::bytea[]) AS new (n, follow_up) WHERE e.n = new.n;

-- name: delete_follow_ups
-- Follow-ups that are done. Takes numbers.
DELETE FROM {schema}.follow_ups WHERE n = ANY ($1::bigint[]);
