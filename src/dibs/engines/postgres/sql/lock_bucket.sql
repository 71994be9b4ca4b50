-- One token bucket. Takes queue, scope, whose. Returns level, at.
SELECT level, at FROM dibs.buckets WHERE queue = $1 AND scope = $2 AND whose = $3 FOR UPDATE;
