-- Edges of tasks that are gone. Takes dependents (JSON array), how many. Ranges of the primary key.
DELETE FROM dibs_edges WHERE (dependent, slot) IN (
    SELECT e.dependent, e.slot FROM json_each(?1) AS wanted CROSS JOIN dibs_edges AS e
    WHERE e.dependent = wanted.value LIMIT ?2
);
