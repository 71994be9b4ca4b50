-- Mark workers dead whose record has expired, and some others. Takes now, the others. Returns ids.
UPDATE dibs.workers SET state = 'dead', presence = NULL
WHERE state <> 'dead' AND (expires_at <= $1::bigint OR id = ANY ($2::text[])) RETURNING id;
