-- One worker, locked. Takes its id. Returns state, record (JSON).
SELECT state, record FROM dibs.workers WHERE id = $1 FOR UPDATE;
