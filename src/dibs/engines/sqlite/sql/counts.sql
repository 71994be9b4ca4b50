-- name: counts
-- Every count. Takes nothing. Returns a JSON array of (what, whose, n); a handful of rows per track.
SELECT json_group_array(json_array(what, whose, n)) FROM dibs_counts WHERE n <> 0;

-- name: count
-- Add to counts. Takes a JSON array of (what, whose, change). One row per track and state that a batch touched.
INSERT INTO dibs_counts (what, whose, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (what, whose) DO UPDATE SET n = CAST(n AS INTEGER) + excluded.n;

-- name: count_two
-- `count` for exactly two counts. Takes what, whose, change, twice.
INSERT INTO dibs_counts (what, whose, n) VALUES (?, ?, ?), (?, ?, ?)
ON CONFLICT (what, whose) DO UPDATE SET n = CAST(n AS INTEGER) + excluded.n;

-- name: count_three
-- `count` for exactly three counts. Takes what, whose, change, three times.
INSERT INTO dibs_counts (what, whose, n) VALUES (?, ?, ?), (?, ?, ?), (?, ?, ?)
ON CONFLICT (what, whose) DO UPDATE SET n = CAST(n AS INTEGER) + excluded.n;

-- name: error_counts
-- Which errors are counted in a queue. Takes the queue. Returns a JSON array of what is counted ('error TYPE'). Reads
-- the range of errors in the primary key.
SELECT json_group_array(what) FROM dibs_counts WHERE what >= 'error ' AND what < 'error!' AND whose = ?;

-- name: pending_by_track
-- How many pending tasks each track has. Takes nothing. Returns a JSON array of (track, n), without empty tracks; a
-- damaged count is read as a whole number.
SELECT json_group_array(json_array(CAST(whose AS INTEGER), max(1, CAST(n AS INTEGER))))
FROM dibs_counts WHERE what = 'pending' AND n > 0;
