-- Some finished tasks of a day, upwards by id. Takes the day, the id to begin after, how many.
-- Returns a JSON array of (id, stream, state). Reads a range of the primary key.
SELECT json_group_array(json_array(id, stream, state))
FROM (SELECT id, stream, state FROM dibs_finished WHERE day = ?1 AND id > ?2 ORDER BY id LIMIT ?3);
