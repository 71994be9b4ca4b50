-- How far the rerank chore has come with a queue. Takes its name. Returns (rerank_due, rerank_id).
SELECT rerank_due, rerank_id FROM dibs_queues WHERE name = ?;
