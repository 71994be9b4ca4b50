-- Workers that are to be marked dead. Takes by when their record has expired, and ids of absent ones (JSON array).
-- Returns ids (JSON array).
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_workers
    WHERE state <> 'dead' AND (expires_at <= ?1 OR id IN (SELECT value FROM json_each(?2))) ORDER BY id
);
