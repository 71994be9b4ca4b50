-- How many pending tasks each stream has. Takes nothing. Returns a JSON array of (stream, n), empty streams left out;
-- a damaged count is taken for a whole number.
SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
FROM dibs_tallies WHERE what = 'pending' AND n > 0;
