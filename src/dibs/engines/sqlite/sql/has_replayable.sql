-- Whether a workflow has members that its replay touches. Takes its id. Returns 0 or 1. Ranges of the indexes of members.
SELECT EXISTS (SELECT 1 FROM dibs_dead WHERE workflow = ?1) OR EXISTS (
    SELECT 1 FROM dibs_finished WHERE workflow = ?1 AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
);
