-- Errands that have come further. Takes numbers, errands (JSON).
UPDATE dibs.errands AS e SET errand = new.errand
FROM unnest($1::bigint[], $2::bytea[]) AS new (n, errand) WHERE e.n = new.n;
