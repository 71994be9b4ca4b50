-- One worker. Takes its id. Returns a JSON array of (id, state, presence, record), empty if there is no such worker.
SELECT json_group_array(json_array(id, state, presence, record)) FROM dibs_workers WHERE id = ?;
