-- Add to the pending tasks of shares. Takes a JSON array of (queue, share, change).
INSERT INTO dibs_shares (queue, share, tag, pending)
SELECT value ->> 0, value ->> 1, 0, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (queue, share) DO UPDATE SET pending = pending + excluded.pending;
