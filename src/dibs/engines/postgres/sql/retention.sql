-- name: days
-- The days that have a partition of their own. Takes the schema. Returns days.
SELECT substr(c.relname, 10)::int AS day
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ '^finished_[0-9]+$';

-- name: first_days
-- Partitions for today and tomorrow, in a new store. Takes nothing.
SELECT {schema}.make_day_{version}(floor(extract(epoch FROM now()) / 86400)::int + n) FROM generate_series(0, 1) AS n;

-- name: make_day
-- A partition for the tasks that end on a day. Takes the day.
SELECT {schema}.make_day_{version}($1::int);

-- name: has_finished
-- Whether tasks that ended on a day are in the default partition. Takes the day.
SELECT EXISTS (SELECT 1 FROM {schema}.finished_other WHERE day = $1::int);

-- name: drop_day
-- Drop the tasks that ended on a day, all at once. Takes the day.
SELECT {schema}.drop_day_{version}($1::int);

-- name: count_of_day
-- How many tasks ended on a day. Takes the day. Returns what, track, n.
SELECT what, track, sum(n)::bigint AS n FROM (
    SELECT what, track, n FROM {schema}.counts WHERE day = $1::int
    UNION ALL
    SELECT what, track, n FROM {schema}.count_changes WHERE day = $1::int AND xid >= (SELECT {schema}.folded_until_{version}())
) AS every
GROUP BY what, track HAVING sum(n) <> 0;

-- name: finished_of_day
-- Some finished tasks of a day, upwards by id. Takes the day, the id to start after or NULL, limit. Returns id, track,
-- state.
SELECT id, track, state FROM {schema}.finished
WHERE day = $1::int AND id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY id LIMIT $3::int;

-- name: next_finished_day
-- The first day that has finished tasks, from this one on. Takes the day. Returns a day, or no row. Reads the counts by
-- day and their later changes, not the tasks.
SELECT day FROM (
    SELECT day, n FROM {schema}.counts WHERE what IN ('completed', 'cancelled') AND day >= $1::int
    UNION ALL
    SELECT day, n FROM {schema}.count_changes
    WHERE what IN ('completed', 'cancelled') AND day >= $1::int AND xid >= (SELECT {schema}.folded_until_{version}())
) AS every
GROUP BY day HAVING sum(n) > 0 ORDER BY day LIMIT 1;

-- name: dead_of_day
-- Some dead tasks of a day, upwards by id. Takes the day, the id to start after or NULL, limit. Returns id, track,
-- state.
SELECT id, track, state FROM {schema}.dead
WHERE day = $1::int AND id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY id LIMIT $3::int;

-- name: next_dead_day
-- The first day that has dead tasks, from this one on. Takes the day. Returns a day, or no row. One seek in `dead_days`.
SELECT day FROM {schema}.dead WHERE day >= $1::int ORDER BY day LIMIT 1;

-- name: leftovers_after
-- Tasks that have a history or edges, upwards by id. Takes the id to start after or NULL, limit. Returns id, and whether the
-- task is in none of the three places.
SELECT s.id,
    NOT EXISTS (SELECT 1 FROM {schema}.tasks AS t WHERE t.id = s.id)
    AND NOT EXISTS (SELECT 1 FROM {schema}.dead AS t WHERE t.id = s.id)
    AND NOT EXISTS (SELECT 1 FROM {schema}.finished AS t WHERE t.id = s.id) AS is_gone
FROM (
    SELECT id FROM (
        (SELECT DISTINCT task AS id FROM {schema}.history WHERE task > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY task LIMIT $2::int)
        UNION
        (SELECT DISTINCT dependent AS id FROM {schema}.edges WHERE dependent > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY dependent LIMIT $2::int)
    ) AS both_kinds
    ORDER BY id LIMIT $2::int
) AS s
ORDER BY s.id;
