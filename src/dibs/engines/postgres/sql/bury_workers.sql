-- Mark workers dead whose record has expired by an instant, and some others. Takes it, the others. Returns ids.
UPDATE dibs.workers SET state = 'dead', presence = NULL
WHERE state <> 'dead' AND (expires_at <= $1::bigint OR id = ANY ($2::text[])) RETURNING id;
