-- The members of workflows by state, in all three places. Takes workflows. Returns workflow, state, n. Ranges of the
-- indexes of members.
SELECT workflow, state, count(*) AS n FROM dibs.tasks WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state
UNION ALL
SELECT workflow, state, count(*) FROM dibs.dead WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state
UNION ALL
SELECT workflow, state, count(*) FROM dibs.finished WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state;
