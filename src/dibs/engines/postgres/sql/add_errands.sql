-- Errands that are not finished. Takes errands (JSON); they get the next numbers, in order.
INSERT INTO dibs.errands (errand)
SELECT new.errand FROM unnest($1::bytea[]) WITH ORDINALITY AS new (errand, k) ORDER BY new.k;
