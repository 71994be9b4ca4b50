-- name: edges_of
-- All edges of some tasks, in their order. Takes dependents (JSON array). Returns a JSON array of (dependent, slot,
-- prerequisite, rule, open). Reads ranges of the primary key.
SELECT json_group_array(json_array(dependent, slot, prerequisite, rule, open))
FROM (
    SELECT e.dependent, e.slot, e.prerequisite, e.rule, e.open
    FROM json_each(?) AS wanted CROSS JOIN dibs_edges AS e WHERE e.dependent = wanted.value
    ORDER BY wanted.key, e.slot
);

-- name: all_edges
-- All edges, in order. Takes dependent and slot to start after, limit. Returns a JSON array of (dependent, slot,
-- prerequisite, rule, open). Reads a range of the primary key.
SELECT json_group_array(json_array(dependent, slot, prerequisite, rule, open))
FROM (SELECT * FROM dibs_edges WHERE (dependent, slot) > (?1, ?2) ORDER BY dependent, slot LIMIT ?3);

-- name: needing
-- Which of some tasks wait for others. Takes ids (JSON array). Returns ids (JSON array). One seek in dibs_needed each.
SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
WHERE EXISTS (SELECT 1 FROM dibs_edges WHERE dependent = wanted.value AND open = 1);

-- name: followed
-- Which of some tasks others wait for. Takes ids (JSON array). Returns ids (JSON array). One seek in dibs_followed
-- each.
SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
WHERE EXISTS (SELECT 1 FROM dibs_edges WHERE prerequisite = wanted.value AND open = 1);

-- name: open_edges_of
-- Open edges of some tasks whose weight differs from the wanted one. Takes a JSON array of (dependent, weight), limit.
-- Returns a JSON array of (dependent, slot, prerequisite). Reads ranges of dibs_needed.
SELECT json_group_array(json_array(dependent, slot, prerequisite))
FROM (
    SELECT e.dependent, e.slot, e.prerequisite
    FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e INDEXED BY dibs_needed
    WHERE e.dependent = wanted.value ->> 0 AND e.open = 1 AND e.weight <> wanted.value ->> 1
    LIMIT ?2
);

-- name: open_edges_to
-- Open edges that lead to some tasks, most urgent first. Takes prerequisites (JSON array), limit. Returns a JSON array
-- of (position of the prerequisite, dependent, slot, rule). Reads ranges of dibs_followed alone.
SELECT json_group_array(json_array(position, dependent, slot, rule))
FROM (
    SELECT wanted.key AS position, e.dependent, e.slot, e.rule
    FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e INDEXED BY dibs_followed
    WHERE e.prerequisite = wanted.value AND e.open = 1
    LIMIT ?2
);

-- name: heaviest
-- The highest weight of the open edges that lead to each of some tasks. Takes ids (JSON array). Returns a JSON array of
-- (id, weight); those that nobody waits for are left out. One seek in dibs_followed each.
SELECT json_group_array(json_array(id, weight))
FROM (
    SELECT wanted.value AS id, (
        SELECT e.weight FROM dibs_edges AS e
        WHERE e.prerequisite = wanted.value AND e.open = 1 ORDER BY e.weight DESC LIMIT 1
    ) AS weight
    FROM json_each(?) AS wanted
)
WHERE weight IS NOT NULL;

-- name: save_edges
-- Save the edges of new tasks. Takes a JSON array of (dependent, slot, prerequisite, rule, weight, open).
REPLACE INTO dibs_edges (dependent, slot, prerequisite, rule, weight, open)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?);

-- name: close_edges
-- Close edges that were judged, or whose dependent waits no longer. Takes a JSON array of (dependent, slot). Seeks by
-- primary key: a dependent may have thousands of edges.
UPDATE dibs_edges SET open = 0
FROM (SELECT value FROM json_each(?)) AS run
WHERE dependent = run.value ->> 0 AND slot = run.value ->> 1;

-- name: open_edges
-- Open edges again. Takes a JSON array of (dependent, slot, weight).
UPDATE dibs_edges SET open = 1, weight = run.value ->> 2
FROM (SELECT value FROM json_each(?)) AS run
WHERE dependent = run.value ->> 0 AND slot = run.value ->> 1;

-- name: save_edge_weights
-- Save the new urgency of dependents. Takes a JSON array of (dependent, slot, weight).
UPDATE dibs_edges SET weight = run.value ->> 2
FROM (SELECT value FROM json_each(?)) AS run
WHERE dependent = run.value ->> 0 AND slot = run.value ->> 1;

-- name: forget_edges
-- Delete edges of deleted tasks. Takes dependents (JSON array), limit. Ranges of the primary key.
DELETE FROM dibs_edges WHERE (dependent, slot) IN (
    SELECT e.dependent, e.slot FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e
    WHERE e.dependent = wanted.value LIMIT ?2
);
