-- name: workflow
-- One workflow. Takes its id. Returns a JSON array of (id, name, created_at, total), empty if there is no such one.
SELECT json_group_array(json_array(id, name, created_at, total)) FROM dibs_workflows WHERE id = ?;

-- name: count_by_state
-- The members of workflows by state, in all three places. Takes workflows (JSON array). Returns a JSON array of
-- (workflow, state, n). Ranges of the indexes of members, which have all of it.
SELECT json_group_array(json_array(workflow, state, n))
FROM (
    SELECT t.workflow, CAST(t.state AS TEXT) AS state, count(*) AS n
    FROM json_each(?1) AS wanted CROSS JOIN dibs_tasks AS t WHERE t.workflow = wanted.value GROUP BY 1, 2
    UNION ALL
    SELECT t.workflow, CAST(t.state AS TEXT), count(*)
    FROM json_each(?1) AS wanted CROSS JOIN dibs_dead AS t WHERE t.workflow = wanted.value GROUP BY 1, 2
    UNION ALL
    SELECT t.workflow, CAST(t.state AS TEXT), count(*)
    FROM json_each(?1) AS wanted CROSS JOIN dibs_finished AS t WHERE t.workflow = wanted.value GROUP BY 1, 2
);

-- name: workflows
-- Workflows downwards by id. Takes the id to begin below (NULL: the newest), how many. Returns a JSON array of (id,
-- name, created_at, total).
SELECT json_group_array(json_array(id, name, created_at, total))
FROM (SELECT * FROM dibs_workflows WHERE id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2);

-- name: add_workflow
-- A workflow that starts with a batch. Takes id, name, created_at. A repeat changes nothing.
INSERT OR IGNORE INTO dibs_workflows (id, name, created_at, total) VALUES (?, ?, ?, 0);

-- name: count_members
-- Count new members of workflows. Takes a JSON array of (workflow, number); unknown workflows are ignored.
UPDATE dibs_workflows SET total = total + new.n
FROM (SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each(?)) AS new
WHERE dibs_workflows.id = new.id;

-- name: members
-- Unfinished members of a workflow, upwards by id. Takes the workflow, the id to start after, limit. Returns a JSON
-- array of rows (the columns of `Row`). Reads a range of dibs_members.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease,
    coalesce((SELECT b.expires_at FROM dibs_batches AS b WHERE b.batch = found.batch), found.lease_expires_at),
    started_at, worker, sequence, version, progress, NULL, NULL, args, facts, created_at
))
FROM (SELECT * FROM dibs_tasks WHERE workflow = ?1 AND id > coalesce(?2, '') ORDER BY id LIMIT ?3) AS found;

-- name: dead_members
-- Dead members of a workflow, upwards by id. Takes the workflow, the id to start after, limit. Returns ids (JSON
-- array).
SELECT json_group_array(id)
FROM (SELECT id FROM dibs_dead WHERE workflow = ?1 AND id > coalesce(?2, '') ORDER BY id LIMIT ?3);

-- name: cancelled_members
-- Members of a workflow that were cancelled because of a dependency, upwards by id. Takes the workflow, the id to start
-- after, limit. Returns ids (JSON array). Reads a range of dibs_finished_members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_finished
    WHERE workflow = ?1 AND id > coalesce(?2, '') AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
    ORDER BY id LIMIT ?3
);

-- name: cancellable_member
-- A member of a workflow that can still be cancelled. Takes the workflow. Returns an id, or none (JSON array). Visits
-- unfinished members in dibs_members until it finds one; only those that were asked to stop are passed over.
SELECT json_group_array(id)
FROM (SELECT id FROM dibs_tasks WHERE workflow = ? AND NOT (state = 'running' AND cancel = 1) LIMIT 1);

-- name: replayable_member
-- A member of a workflow that its replay touches. Takes the workflow. Returns an id, or none (JSON array). Ranges of
-- the indexes of members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_dead WHERE workflow = ?1
    UNION ALL
    SELECT id FROM dibs_finished
    WHERE workflow = ?1 AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
    LIMIT 1
);

-- name: workflows_after
-- Workflows, upwards by id. Takes the id to start after or NULL, limit. Returns a JSON array of (id, 1 if it has no
-- members left). A few seeks for each.
SELECT json_group_array(json_array(
    id,
    NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE workflow = looked.id)
    AND NOT EXISTS (SELECT 1 FROM dibs_dead WHERE workflow = looked.id)
    AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE workflow = looked.id)
))
FROM (SELECT id FROM dibs_workflows WHERE id > coalesce(?1, '') ORDER BY id LIMIT ?2) AS looked;

-- name: delete_workflows
-- Delete workflows. Takes ids (JSON array).
DELETE FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(?));
