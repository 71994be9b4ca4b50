-- Members of a workflow that were cancelled because of a dependency, upwards by id. Takes the workflow, the id to begin
-- after, how many. Returns ids.
SELECT id FROM dibs.finished
WHERE workflow = $1::uuid AND id > $2::uuid AND state = 'cancelled' AND reason = 'dependency' ORDER BY id LIMIT $3::int;
