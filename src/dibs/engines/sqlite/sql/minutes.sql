-- What workers did. Takes the first and last minute, and a queue or NULL for all. Returns a JSON array of (minute, record
-- as JSON text), oldest first. Reads a range of the primary key.
SELECT json_group_array(json_array(minute, record))
FROM (
    SELECT minute, record FROM dibs_minutes
    WHERE minute BETWEEN ?1 AND ?2 AND (?3 IS NULL OR queue = ?3)
    ORDER BY minute, worker, queue, tier
);
