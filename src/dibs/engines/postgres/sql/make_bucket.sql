-- A bucket that was never used, to be locked. Takes queue, scope, whose. Its level says that it is not known.
INSERT INTO dibs.buckets (queue, scope, whose, level, at) VALUES ($1, $2, $3, -1, 0) ON CONFLICT DO NOTHING;
