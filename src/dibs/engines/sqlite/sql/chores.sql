-- The last runs of all chores. Takes nothing. Returns a JSON array of (name, record as JSON text).
SELECT json_group_array(json_array(name, record)) FROM dibs_chores;
