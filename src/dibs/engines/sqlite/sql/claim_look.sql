-- What a claim must know first. Takes nothing. Returns the generation, when the next waiting task falls due, and a JSON
-- array of (stream, pending tasks). One seek in dibs_due, one short range of dibs_tallies.
SELECT
    generation,
    (SELECT min(due_at) FROM dibs_tasks WHERE due_at IS NOT NULL),
    (SELECT json_group_array(json_array(whose, n)) FROM dibs_tallies WHERE what = 'pending' AND n > 0)
FROM dibs_store;
