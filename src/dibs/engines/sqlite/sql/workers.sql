-- All workers by id. Takes nothing. Returns a JSON array of (id, state, presence, record).
SELECT json_group_array(json_array(id, state, presence, record)) FROM (SELECT * FROM dibs_workers ORDER BY id);
