-- Count new members of workflows. Takes a JSON array of (workflow, how many); one that is not known is left out.
UPDATE dibs_workflows SET total = total + new.n
FROM (SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each(?)) AS new
WHERE dibs_workflows.id = new.id;
