-- Open edges that lead to some tasks, most urgent first. Takes prerequisites (JSON array), how many.
-- Returns a JSON array of (position of the prerequisite, dependent, slot, rule). Reads ranges of dibs_followed alone.
SELECT json_group_array(json_array(position, dependent, slot, rule))
FROM (
    SELECT wanted.key AS position, e.dependent, e.slot, e.rule
    FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e INDEXED BY dibs_followed
    WHERE e.prerequisite = wanted.value AND e.open = 1
    LIMIT ?2
);
