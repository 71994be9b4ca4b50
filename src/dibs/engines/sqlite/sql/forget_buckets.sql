-- Forget token buckets of a queue that is deleted. Takes the queue, how many. Reads a range of the primary key.
DELETE FROM dibs_buckets WHERE (queue, scope, whose) IN (
    SELECT queue, scope, whose FROM dibs_buckets WHERE queue = ?1 LIMIT ?2
);
