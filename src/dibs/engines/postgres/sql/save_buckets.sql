-- Spend tokens. Takes queues, scopes, whose, levels, instants, opens_at.
INSERT INTO dibs.buckets (queue, scope, whose, level, at, opens_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (queue, scope, whose) DO UPDATE SET level = excluded.level, at = excluded.at, opens_at = excluded.opens_at;
