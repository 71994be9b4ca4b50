-- Errands that are not finished. Takes a JSON array of (n or NULL, errand as JSON text); new ones get the next numbers.
REPLACE INTO dibs_errands (n, errand) SELECT value ->> 0, value ->> 1 FROM json_each(?);
