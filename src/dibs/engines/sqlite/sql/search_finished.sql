-- Finished tasks of one day downwards by id. Takes the id to begin below, how many, the day. Returns a JSON array of
-- rows (the columns of `Row`). Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, stream, state, rank, ready_at, NULL, NULL, lease, NULL, started_at, worker, sequence, progress, finished_at,
    result, args, facts
))
FROM (SELECT * FROM dibs_finished WHERE day = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2);
