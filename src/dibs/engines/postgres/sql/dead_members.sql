-- Dead members of a workflow, upwards by id. Takes the workflow, the id to begin after, how many. Returns ids.
SELECT id FROM dibs.dead WHERE workflow = $1::uuid AND id > $2::uuid ORDER BY id LIMIT $3::int;
