-- Forget workers that died long ago. Takes the instant they must have died before (inclusive), how many.
DELETE FROM dibs.workers
WHERE id = ANY (ARRAY(SELECT id FROM dibs.workers WHERE state = 'dead' AND expires_at <= $1::bigint LIMIT $2::int));
