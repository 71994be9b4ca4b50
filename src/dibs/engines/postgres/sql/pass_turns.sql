-- Turns that the clock has passed go by name from now on. Takes the queue, its clock. A range of `turns`.
UPDATE dibs.shares SET tag = 0 WHERE queue = $1 AND tag > 0 AND tag <= $2::bigint AND pending > 0;
