-- The first day after another that has dead tasks. Takes a day, the last that can be. Returns a day or NULL: what is no
-- number sorts after all days. One seek in dibs_dead_days.
SELECT min(day) FROM dibs_dead WHERE day > ?1 AND day <= ?2;
