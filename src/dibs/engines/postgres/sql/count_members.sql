-- Count new members of workflows. Takes workflows, how many; one that is not known is left out.
UPDATE dibs.workflows AS w SET total = w.total + new.n
FROM unnest($1::uuid[], $2::bigint[]) AS new (id, n) WHERE w.id = new.id;
