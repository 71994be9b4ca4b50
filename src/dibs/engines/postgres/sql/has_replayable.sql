-- Whether a workflow has members that its replay touches. Takes its id. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM dibs.dead WHERE workflow = $1::uuid) OR EXISTS (
    SELECT 1 FROM dibs.finished WHERE workflow = $1::uuid AND state = 'cancelled' AND reason = 'dependency'
);
