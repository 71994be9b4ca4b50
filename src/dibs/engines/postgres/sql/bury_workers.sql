-- Mark workers dead whose record has expired. Takes now. Returns ids.
UPDATE dibs.workers SET state = 'dead' WHERE state <> 'dead' AND expires_at <= $1::bigint RETURNING id;
