-- All workers by id. Takes nothing. Returns id, state, record (JSON).
SELECT id, state, record FROM dibs.workers ORDER BY id;
