-- Shares that have been served. Takes queues, shares, tags.
INSERT INTO dibs.shares (queue, share, tag) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (queue, share) DO UPDATE SET tag = excluded.tag;
