-- Have queues to oneself for a claim. Takes their names, in order, now (NULL: the clock), whether the claim serves others
-- besides. Returns the names of those that nobody else has, and now, as of after the wait.
SELECT * FROM dibs.lock_for_claim($1::text[], $2::bigint, $3::boolean);
