-- Errands that are done. Takes numbers.
DELETE FROM dibs.errands WHERE n = ANY ($1::bigint[]);
