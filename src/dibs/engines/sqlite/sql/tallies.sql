-- Every count. Takes nothing. Returns a JSON array of (what, whose, n); a handful of rows per stream.
SELECT json_group_array(json_array(what, whose, n)) FROM dibs_tallies WHERE n <> 0;
