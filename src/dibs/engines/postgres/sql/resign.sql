-- Give the term back, so that anyone may take the next. Takes its number.
UPDATE dibs.term SET worker = '', expires_at = 0 WHERE number = $1;
