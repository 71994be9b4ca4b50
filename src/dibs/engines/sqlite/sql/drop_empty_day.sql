-- Forget a day that has no finished tasks left. Takes the day.
DELETE FROM dibs_days WHERE day = ?1 AND NOT EXISTS (SELECT 1 FROM dibs_finished WHERE day = ?1);
