-- name: workflow
-- One workflow. Takes its id. Returns a JSON array of (id, name, created_at, total, counts) as `workflows` does, empty
-- if there is no such workflow.
SELECT json_group_array(json_array(id, name, created_at, total, (
    SELECT json_group_array(json_array(CAST(state AS TEXT), n))
    FROM (
        SELECT state, count(*) AS n FROM dibs_tasks WHERE workflow = ?1 GROUP BY state
        UNION ALL SELECT state, count(*) FROM dibs_dead WHERE workflow = ?1 GROUP BY state
        UNION ALL SELECT state, count(*) FROM dibs_finished WHERE workflow = ?1 GROUP BY state
    )
)))
FROM dibs_workflows WHERE id = ?1;

-- name: workflows
-- Workflows downwards by id. Takes the id to start below (NULL: the newest), limit. Returns a JSON array of (id, name,
-- created_at, total, counts), counts being (state, n) by place. Each is counted in a range of the covering indexes.
SELECT json_group_array(json_array(id, name, created_at, total, json(counts)))
FROM (
    SELECT *, (
        SELECT json_group_array(json_array(CAST(state AS TEXT), n))
        FROM (
            SELECT state, count(*) AS n FROM dibs_tasks WHERE workflow = w.id GROUP BY state
            UNION ALL SELECT state, count(*) FROM dibs_dead WHERE workflow = w.id GROUP BY state
            UNION ALL SELECT state, count(*) FROM dibs_finished WHERE workflow = w.id GROUP BY state
        )
    ) AS counts
    FROM dibs_workflows AS w WHERE id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2
);

-- name: has_workflow
-- Whether there is a workflow. Takes its id. Returns one row, or none.
SELECT 1 FROM dibs_workflows WHERE id = ?;

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
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (SELECT * FROM dibs_tasks WHERE workflow = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: dead_members
-- Dead members of a workflow, upwards by id. Takes the workflow, the id to start after, limit. Returns ids (JSON
-- array).
SELECT json_group_array(id)
FROM (SELECT id FROM dibs_dead WHERE workflow = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: cancelled_members
-- Members of a workflow that were cancelled because of a dependency, upwards by id. Takes the workflow, the id to start
-- after, limit. Returns ids (JSON array). Reads a range of dibs_finished_members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_finished
    WHERE workflow = ?1 AND id > ?2 AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
    ORDER BY id LIMIT ?3
);

-- name: has_cancellable
-- Whether a workflow has members that can still be cancelled. Takes its id. Returns 0 or 1. Visits unfinished members
-- in dibs_members until it finds one; only those that were asked to stop are skipped.
SELECT EXISTS (
    SELECT 1 FROM dibs_tasks WHERE workflow = ? AND NOT (state = 'running' AND cancel = 1)
);

-- name: has_replayable
-- Whether a workflow has members that a replay would change. Takes its id. Returns 0 or 1. Ranges of the indexes of
-- members.
SELECT EXISTS (SELECT 1 FROM dibs_dead WHERE workflow = ?1) OR EXISTS (
    SELECT 1 FROM dibs_finished WHERE workflow = ?1 AND state = 'cancelled' AND iif(json_valid(facts), facts ->> 'reason', '') = 'dependency'
);

-- name: empty_workflows
-- Workflows without members, upwards by id. Takes the id to start after, how many to check. Returns how many were
-- checked, the last of them, and the empty ones (JSON array). A few seeks for each.
WITH looked AS MATERIALIZED (SELECT id FROM dibs_workflows WHERE id > ?1 ORDER BY id LIMIT ?2)
SELECT
    (SELECT count(*) FROM looked),
    (SELECT max(id) FROM looked),
    (
        SELECT json_group_array(id) FROM looked
        WHERE NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE workflow = looked.id)
          AND NOT EXISTS (SELECT 1 FROM dibs_dead WHERE workflow = looked.id)
          AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE workflow = looked.id)
    );

-- name: delete_workflows
-- Delete workflows. Takes ids (JSON array).
DELETE FROM dibs_workflows WHERE id IN (SELECT value FROM json_each(?));
