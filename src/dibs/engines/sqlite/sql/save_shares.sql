-- Shares that have got a turn, or more or fewer pending tasks. Takes a JSON array of (queue, share, tag or -1 if it stays,
-- change of pending tasks). Seeks by primary key.
INSERT INTO dibs_shares (queue, share, tag, pending)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
ON CONFLICT (queue, share) DO UPDATE SET
    tag = iif(excluded.tag < 0, tag, excluded.tag), pending = pending + excluded.pending;
