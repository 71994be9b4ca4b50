-- If one of these workers leads, anyone may take the next term. Takes workers.
UPDATE dibs.term SET worker = '', expires_at = 0 WHERE worker = ANY ($1::text[]);
