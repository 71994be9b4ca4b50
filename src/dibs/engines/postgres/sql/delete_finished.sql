-- Remove finished tasks. Takes days, ids.
DELETE FROM dibs.finished AS f USING unnest($1::int[], $2::uuid[]) AS d (day, id) WHERE f.day = d.day AND f.id = d.id;
