-- Edges that have been judged, or whose dependent waits no longer. Takes a JSON array of (dependent, slot). Seeks by
-- primary key: a dependent may have thousands of edges.
UPDATE dibs_edges SET open = 0
FROM (SELECT value FROM json_each(?)) AS run
WHERE dependent = run.value ->> 0 AND slot = run.value ->> 1;
