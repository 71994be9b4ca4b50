-- The last runs of all chores. Takes nothing. Returns name, record (JSON).
SELECT name, record FROM dibs.chores;
