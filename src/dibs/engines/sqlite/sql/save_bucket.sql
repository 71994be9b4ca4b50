-- Spend start tokens. Takes the bucket (JSON) and the queue's name.
UPDATE dibs_queues SET bucket = ?1 WHERE name = ?2;
