-- Whether anything is left to be followed up. Takes numbers to pass over. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM dibs.errands WHERE (n IN (SELECT unnest($1::bigint[]))) IS NOT TRUE);
