-- Edges whose dependent has another urgency. Takes a JSON array of (dependent, slot, weight).
UPDATE dibs_edges SET weight = run.value ->> 2
FROM (SELECT value FROM json_each(?)) AS run
WHERE dependent = run.value ->> 0 AND slot = run.value ->> 1;
