-- name: workflow
-- One workflow. Takes its id. Returns id, name, created_at, total.
SELECT id, name, created_at, total FROM {schema}.workflows WHERE id = $1::uuid;

-- name: workflows
-- Workflows downwards by id. Takes the id to start below (NULL: the newest), limit. Returns id, name, created_at,
-- total.
SELECT id, name, created_at, total FROM {schema}.workflows
WHERE id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY id DESC LIMIT $2::int;

-- name: add_workflow
-- A workflow that starts with a batch. Takes id, name, created_at. A repeat changes nothing.
INSERT INTO {schema}.workflows (id, name, created_at, total) VALUES ($1::uuid, $2, $3, 0) ON CONFLICT DO NOTHING;

-- name: count_members
-- Count new members of workflows. Takes workflows, numbers; unknown workflows are ignored.
UPDATE {schema}.workflows AS w SET total = w.total + new.n
FROM unnest($1::uuid[], $2::bigint[]) AS new (id, n) WHERE w.id = new.id;

-- name: count_by_state
-- The members of workflows by state, in all three places. Takes workflows. Returns workflow, state, n. Ranges of the
-- indexes of members.
SELECT workflow, state, count(*) AS n FROM {schema}.tasks WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state
UNION ALL
SELECT workflow, state, count(*) FROM {schema}.dead WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state
UNION ALL
SELECT workflow, state, count(*) FROM {schema}.finished WHERE workflow = ANY ($1::uuid[]) GROUP BY workflow, state;

-- name: members
-- Unfinished members of a workflow, upwards by id, locked. Takes the workflow, the id to start after, limit. Returns
-- the columns of `find`. Reads a range of `members`.
SELECT {row}
FROM {schema}.tasks AS t
WHERE t.workflow = $1::uuid AND t.id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY t.id LIMIT $3::int FOR UPDATE;

-- name: dead_members
-- Dead members of a workflow, upwards by id. Takes the workflow, the id to start after, limit. Returns ids.
SELECT id FROM {schema}.dead WHERE workflow = $1::uuid AND id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY id LIMIT $3::int;

-- name: cancelled_members
-- Members of a workflow that were cancelled because of a dependency, upwards by id. Takes the workflow, the id to start
-- after, limit. Returns ids.
SELECT id FROM {schema}.finished
WHERE workflow = $1::uuid AND id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') AND state = 'cancelled' AND reason = 'dependency' ORDER BY id LIMIT $3::int;

-- name: cancellable_member
-- A member of a workflow that can still be cancelled. Takes the workflow. Returns an id, or none.
SELECT id FROM {schema}.tasks WHERE workflow = $1::uuid AND NOT (state = 'running' AND cancel) LIMIT 1;

-- name: replayable_member
-- A member of a workflow that its replay touches. Takes the workflow. Returns an id, or none.
SELECT id FROM {schema}.dead WHERE workflow = $1::uuid
UNION ALL
SELECT id FROM {schema}.finished WHERE workflow = $1::uuid AND state = 'cancelled' AND reason = 'dependency'
LIMIT 1;

-- name: workflows_after
-- Workflows upwards by id. Takes the id to start after or NULL, limit. Returns id, and whether it has no members left.
SELECT w.id,
    NOT EXISTS (SELECT 1 FROM {schema}.tasks AS t WHERE t.workflow = w.id)
    AND NOT EXISTS (SELECT 1 FROM {schema}.dead AS t WHERE t.workflow = w.id)
    AND NOT EXISTS (SELECT 1 FROM {schema}.finished AS t WHERE t.workflow = w.id) AS is_empty
FROM {schema}.workflows AS w WHERE w.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY w.id LIMIT $2::int;

-- name: delete_workflows
-- Delete workflows. Takes ids.
DELETE FROM {schema}.workflows WHERE id = ANY ($1::uuid[]);
