-- Forget workers that died long ago. Takes the instant they must have died before (inclusive), how many.
DELETE FROM dibs_workers
WHERE id IN (SELECT id FROM dibs_workers WHERE state = 'dead' AND expires_at <= ?1 LIMIT ?2);
