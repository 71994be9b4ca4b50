-- Have some queues to oneself until the transaction ends. Takes their names, in order.
SELECT dibs.lock_queues($1::text[]);
