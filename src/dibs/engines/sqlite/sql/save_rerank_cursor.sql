-- Remember how far the rerank chore has come. Takes due_at, id (both NULL: start over) and the queue's name.
UPDATE dibs_queues SET rerank_due = ?1, rerank_id = ?2 WHERE name = ?3;
