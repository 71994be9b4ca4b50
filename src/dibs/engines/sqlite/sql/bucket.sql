-- One token bucket. Takes queue, scope, whose. Returns (level, at), or no row. Seeks by primary key.
SELECT level, at FROM dibs_buckets WHERE queue = ? AND scope = ? AND whose = ?;
