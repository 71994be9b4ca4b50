-- Some dead tasks of a day, upwards by id. Takes the day, the id to begin after, how many. Returns id, stream, state.
SELECT id, stream, state FROM dibs.dead WHERE day = $1::int AND id > $2::uuid ORDER BY id LIMIT $3::int;
