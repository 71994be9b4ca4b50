-- Edges of tasks that are gone. Takes dependents, how many. Ranges of the primary key.
DELETE FROM dibs.edges AS e USING (
    SELECT dependent, slot FROM dibs.edges WHERE dependent = ANY ($1::uuid[]) LIMIT $2::int
) AS gone
WHERE e.dependent = gone.dependent AND e.slot = gone.slot;
