-- Dead members of a workflow, upwards by id. Takes the workflow, the id to begin after, how many. Returns ids (JSON array).
SELECT json_group_array(id)
FROM (SELECT id FROM dibs_dead WHERE workflow = ?1 AND id > ?2 ORDER BY id LIMIT ?3);
