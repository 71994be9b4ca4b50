-- Forget shares. Takes a JSON array of (queue, share). Seeks by primary key.
DELETE FROM dibs_shares WHERE (queue, share) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?));
