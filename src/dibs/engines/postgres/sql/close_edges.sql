-- Edges that have been judged, or whose dependent waits no longer. Takes dependents, slots.
UPDATE dibs.edges AS e SET open = false FROM unnest($1::uuid[], $2::int[]) AS done (dependent, slot)
WHERE e.dependent = done.dependent AND e.slot = done.slot AND e.open;
