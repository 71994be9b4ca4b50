-- Add to the pending tasks of shares. Takes queues, shares, changes. The queues' locks are held.
INSERT INTO dibs.shares AS s (queue, share, pending)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET pending = s.pending + excluded.pending;
