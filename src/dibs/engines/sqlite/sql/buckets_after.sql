-- Token buckets, in order. Takes queue, scope and whose to begin after, how many. Returns a JSON array of (queue, scope,
-- whose, level, at, opens_at). Reads a range of the primary key.
SELECT json_group_array(json_array(queue, scope, whose, level, at, opens_at))
FROM (
    SELECT * FROM dibs_buckets WHERE (queue, scope, whose) > (?1, ?2, ?3) ORDER BY queue, scope, whose LIMIT ?4
);
