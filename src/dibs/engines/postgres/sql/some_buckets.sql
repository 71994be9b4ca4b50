-- Buckets in order, locked. Takes queue, scope, whose to begin after, how many. Returns queue, scope, whose, level, at.
SELECT queue, scope, whose, level, at FROM dibs.buckets
WHERE (queue, scope, whose) > ($1, $2, $3) ORDER BY queue, scope, whose LIMIT $4::int FOR UPDATE SKIP LOCKED;
