-- Delete a queue's row. Takes its name. Its streams stay: ended tasks name them.
DELETE FROM dibs_queues WHERE name = ?;
