-- Tasks whose time has come become pending. Takes now, how many, the instant to look from. See the function.
SELECT dibs.promote($1::bigint, $2::int, $3::bigint);
