-- The first day after another that has dead tasks. Takes a day. Returns a day or NULL. One seek in dibs_dead_days.
SELECT min(day) FROM dibs_dead WHERE day > ?;
