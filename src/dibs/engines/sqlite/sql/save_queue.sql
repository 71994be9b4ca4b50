-- A queue as it is now. Takes name, state, settings (JSON), epoch. The bucket of start tokens stays as it was; a new
-- epoch makes the rerank chore start over.
INSERT INTO dibs_queues (name, state, settings, epoch) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    state = excluded.state,
    settings = excluded.settings,
    rerank_due = iif(epoch = excluded.epoch, rerank_due, NULL),
    rerank_id = iif(epoch = excluded.epoch, rerank_id, NULL),
    epoch = excluded.epoch;
