-- Add entries to histories. Takes a JSON array of (task, entry as JSON text); later entries get higher numbers.
INSERT INTO dibs_history (task, n, entry)
SELECT
    value ->> 0,
    (SELECT coalesce(max(n), 0) FROM dibs_history WHERE task = value ->> 0) + 1 + key,
    value ->> 1
FROM json_each(?);
