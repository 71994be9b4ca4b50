-- Whether there is a workflow. Takes its id. Returns one row, or none.
SELECT 1 FROM dibs_workflows WHERE id = ?;
