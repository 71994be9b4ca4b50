-- The highest tag of a queue's shares, for when its clock can't be read. Takes the queue, the highest that can be.
-- Returns a tag, 0 if there is none. Reads a range of the primary key.
SELECT coalesce(CAST(max(tag) AS INTEGER), 0) FROM dibs_shares WHERE queue = ?1 AND tag BETWEEN 0 AND ?2;
