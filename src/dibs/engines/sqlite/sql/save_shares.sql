-- The tags of shares that have been served. Takes a JSON array of (share, tag), the queue.
INSERT INTO dibs_shares (queue, share, tag, pending)
SELECT ?2, value ->> 0, value ->> 1, 0 FROM json_each(?1) WHERE true
ON CONFLICT (queue, share) DO UPDATE SET tag = excluded.tag;
