-- Spend tokens. Takes a JSON array of (queue, scope, whose, level, at, opens_at or NULL). Seeks by primary key.
REPLACE INTO dibs_buckets (queue, scope, whose, level, at, opens_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?);
