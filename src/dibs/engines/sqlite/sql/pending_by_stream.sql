-- How many pending tasks each stream has. Takes nothing. Returns a JSON array of (stream, n), empty streams left out.
SELECT json_group_array(json_array(whose, n)) FROM dibs_tallies WHERE what = 'pending' AND n > 0;
