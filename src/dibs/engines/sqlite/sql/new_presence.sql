-- The next byte of the presence file. Takes nothing. Returns its offset; none is given twice.
UPDATE dibs_store SET presence = presence + 1 RETURNING presence;
