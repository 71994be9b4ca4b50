-- Whether a workflow has members that can still be cancelled. Takes its id. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM dibs.tasks WHERE workflow = $1::uuid AND NOT (state = 'running' AND cancel));
