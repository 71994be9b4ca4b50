-- Forget token buckets. Takes a JSON array of (queue, scope, whose). Seeks by primary key.
DELETE FROM dibs_buckets
WHERE (queue, scope, whose) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?));
