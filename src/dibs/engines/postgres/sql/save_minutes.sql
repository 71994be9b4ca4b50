-- What workers did, minute by minute. Takes minutes, workers, queues, tiers, records (JSON). Written whole: a repeat
-- changes nothing.
INSERT INTO dibs.minutes (minute, worker, queue, tier, record)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[])
ON CONFLICT (minute, worker, queue, tier) DO UPDATE SET record = excluded.record;
