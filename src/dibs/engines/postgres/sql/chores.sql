-- The last runs of all chores. Takes nothing. Returns records (JSON).
SELECT record FROM dibs.chores;
