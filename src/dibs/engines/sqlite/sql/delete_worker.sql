-- A worker has left in good order. Takes its id.
DELETE FROM dibs_workers WHERE id = ?;
