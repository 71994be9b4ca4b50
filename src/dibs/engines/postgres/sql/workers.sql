-- All workers by id. Takes nothing. Returns state, record (JSON).
SELECT state, record FROM dibs.workers ORDER BY id;
