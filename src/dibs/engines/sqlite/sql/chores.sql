-- The last runs of all chores. Takes nothing. Returns a JSON array of records (JSON text each).
SELECT json_group_array(record) FROM dibs_chores;
