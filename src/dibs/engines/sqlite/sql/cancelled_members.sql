-- Members of a workflow that were cancelled because of a dependency, upwards by id. Takes the workflow, the id to begin
-- after, how many. Returns ids (JSON array). Reads a range of dibs_finished_members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_finished
    WHERE workflow = ?1 AND id > ?2 AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
    ORDER BY id LIMIT ?3
);
