-- A worker has left in good order. Takes its id.
DELETE FROM dibs.workers WHERE id = $1;
