-- Delete a queue, its buckets and its shares. Takes its name. Its streams stay: ended tasks name them.
WITH buckets AS (DELETE FROM dibs.buckets WHERE queue = $1), shares AS (DELETE FROM dibs.shares WHERE queue = $1)
DELETE FROM dibs.queues WHERE name = $1;
