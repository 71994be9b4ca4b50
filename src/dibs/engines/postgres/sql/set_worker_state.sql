-- Tell a worker what to do. Takes the state and the worker's id.
UPDATE dibs.workers SET state = $1 WHERE id = $2;
