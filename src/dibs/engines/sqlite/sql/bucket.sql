-- The start tokens of a queue. Takes its name. Returns the bucket (JSON) or NULL.
SELECT bucket FROM dibs_queues WHERE name = ?;
