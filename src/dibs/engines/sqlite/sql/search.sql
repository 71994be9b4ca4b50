-- name: search_tasks
-- Unfinished tasks downwards by id. Takes the id to start below, limit. Returns a JSON array of rows (the columns of
-- `Row`). Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (SELECT * FROM dibs_tasks WHERE id < ?1 ORDER BY id DESC LIMIT ?2);

-- name: search_dead
-- Dead tasks downwards by id. Takes the id to start below, limit. Returns a JSON array of rows (the columns of `Row`).
-- Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, NULL, NULL, lease, NULL, started_at, worker, sequence, progress, finished_at,
    NULL, args, facts
))
FROM (SELECT * FROM dibs_dead WHERE id < ?1 ORDER BY id DESC LIMIT ?2);

-- name: search_finished
-- Finished tasks of one day downwards by id. Takes the id to start below, limit, the day. Returns a JSON array of rows
-- (the columns of `Row`). Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, NULL, NULL, lease, NULL, started_at, worker, sequence, progress, finished_at,
    result, args, facts
))
FROM (SELECT * FROM dibs_finished WHERE day = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2);

-- name: search_members
-- Members of a workflow downwards by id. Takes the workflow, the id to start below, limit. Returns ids (JSON array).
-- Merges ranges of the three indexes of members.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks WHERE workflow = ?1 AND id < ?2
    UNION ALL SELECT id FROM dibs_dead WHERE workflow = ?1 AND id < ?2
    UNION ALL SELECT id FROM dibs_finished WHERE workflow = ?1 AND id < ?2
    ORDER BY id DESC LIMIT ?3
);

-- name: oldest_tasks
-- Unfinished tasks upwards by id. Takes the id to start after, limit. Returns a JSON array of rows (the columns of
-- `Row`). Reads a range of the primary key.
SELECT json_group_array(json_array(
    id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_expires_at, started_at, worker, sequence,
    progress, NULL, NULL, args, facts
))
FROM (SELECT * FROM dibs_tasks WHERE id > ?1 ORDER BY id LIMIT ?2);

-- name: ids_beyond
-- Tasks whose ids no search reaches: blobs, or texts that are not UTF-8. Takes a text that sorts after every id, limit.
-- Returns a JSON array of ids. The end of each place, and of each day.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks WHERE id >= ?1
    UNION ALL SELECT id FROM dibs_dead WHERE id >= ?1
    UNION ALL SELECT f.id FROM dibs_days AS d CROSS JOIN dibs_finished AS f WHERE f.day = d.day AND f.id >= ?1
    LIMIT ?2
);
