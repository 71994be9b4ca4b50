-- Dead tasks whose day can't be one. Takes the last day that can be, how many. Returns a JSON array of (id, day). Reads
-- the end of dibs_dead_days.
SELECT json_group_array(json_array(id, day)) FROM (SELECT id, day FROM dibs_dead WHERE day > ?1 ORDER BY day, id LIMIT ?2);
