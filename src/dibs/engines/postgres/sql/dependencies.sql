-- name: edges_of
-- All edges of some tasks, in their order. Takes dependents. Returns dependent, slot, prerequisite, rule, open.
SELECT dependent, slot, prerequisite, rule, open FROM {schema}.edges
WHERE dependent = ANY ($1::uuid[]) ORDER BY dependent, slot;

-- name: needing
-- Which of some tasks wait for others. Takes ids. Returns ids. One seek in `needed` each.
SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM {schema}.edges AS e WHERE e.dependent = wanted.id AND e.open);

-- name: followed
-- Which of some tasks others wait for. Takes ids. Returns ids. One seek in `followed` each.
SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM {schema}.edges AS e WHERE e.prerequisite = wanted.id AND e.open);

-- name: prerequisites
-- Tasks that new ones wait for, locked. Takes ids, in order. Returns id, state.
SELECT * FROM {schema}.lock_needed_{version}($1::uuid[]);

-- name: heaviest
-- The highest weight of the open edges that lead to each of some tasks. Takes ids. Returns id, weight, without tasks
-- that none waits for. One seek in `followed` each.
SELECT wanted.id, e.weight FROM unnest($1::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT weight FROM {schema}.edges WHERE prerequisite = wanted.id AND open ORDER BY weight DESC LIMIT 1
) AS e;

-- name: open_edges_of
-- Open edges of some tasks whose weight differs from the wanted one. Takes dependents, weights, limit. Returns
-- dependent, slot, prerequisite. Reads ranges of `needed`.
SELECT e.dependent, e.slot, e.prerequisite
FROM unnest($1::uuid[], $2::int[]) AS wanted (dependent, weight)
JOIN {schema}.edges AS e ON e.dependent = wanted.dependent AND e.open AND e.weight <> wanted.weight
LIMIT $3::int;

-- name: open_edges_to
-- Open edges that lead to some tasks, most urgent first. Takes prerequisites, limit. Returns the position of the
-- prerequisite, dependent, slot, rule. Reads ranges of `followed`.
SELECT (wanted.k - 1)::int AS position, e.dependent, e.slot, e.rule
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, k)
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.edges WHERE prerequisite = wanted.id AND open
    ORDER BY weight DESC, dependent, slot LIMIT $2::int
) AS e
ORDER BY wanted.k LIMIT $2::int;

-- name: save_edges
-- Save the edges of new tasks, and mark the stored tasks that they lead to, which then complete the longer way. Takes
-- dependents, slots, prerequisites, rules, weights, open. The tasks are locked.
WITH saved AS (
    INSERT INTO {schema}.edges (dependent, slot, prerequisite, rule, weight, open)
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::int[], $6::boolean[])
    ON CONFLICT (dependent, slot) DO UPDATE SET
        prerequisite = excluded.prerequisite, rule = excluded.rule, weight = excluded.weight, open = excluded.open
    RETURNING prerequisite
), runs AS (
    UPDATE {schema}.running SET followed = true WHERE id IN (SELECT prerequisite FROM saved) AND NOT followed
)
UPDATE {schema}.tasks SET followed = true WHERE id IN (SELECT prerequisite FROM saved) AND NOT followed;

-- name: close_edges
-- Close edges that were judged, or whose dependent waits no longer. Takes dependents, slots.
UPDATE {schema}.edges AS e SET open = false FROM unnest($1::uuid[], $2::int[]) AS done (dependent, slot)
WHERE e.dependent = done.dependent AND e.slot = done.slot AND e.open;

-- name: open_edges
-- Edges that are waited for again, and the tasks that they lead to, which then complete the longer way. Takes
-- dependents, slots, weights. The tasks are locked.
WITH opened AS (
    UPDATE {schema}.edges AS e SET open = true, weight = new.weight
    FROM unnest($1::uuid[], $2::int[], $3::int[]) AS new (dependent, slot, weight)
    WHERE e.dependent = new.dependent AND e.slot = new.slot
    RETURNING e.prerequisite
), runs AS (
    UPDATE {schema}.running SET followed = true WHERE id IN (SELECT prerequisite FROM opened) AND NOT followed
)
UPDATE {schema}.tasks SET followed = true WHERE id IN (SELECT prerequisite FROM opened) AND NOT followed;

-- name: save_edge_weights
-- Save the new urgency of dependents. Takes dependents, slots, weights.
UPDATE {schema}.edges AS e SET weight = new.weight
FROM unnest($1::uuid[], $2::int[], $3::int[]) AS new (dependent, slot, weight)
WHERE e.dependent = new.dependent AND e.slot = new.slot;

-- name: delete_edges
-- Delete the edges of deleted tasks. Takes ids.
DELETE FROM {schema}.edges WHERE dependent = ANY ($1::uuid[]);

-- name: forget_edges
-- Delete some edges of deleted tasks. Takes dependents, limit. Ranges of the primary key.
DELETE FROM {schema}.edges AS e USING (
    SELECT dependent, slot FROM {schema}.edges WHERE dependent = ANY ($1::uuid[]) LIMIT $2::int
) AS gone
WHERE e.dependent = gone.dependent AND e.slot = gone.slot;

-- name: odd_edges
-- Edges whose rule this version does not know. Takes the rules that it does. Returns dependent, rule. Scans all edges;
-- only for the doctor.
SELECT DISTINCT dependent, rule FROM {schema}.edges WHERE rule <> ALL ($1::text[]) LIMIT 10000;
