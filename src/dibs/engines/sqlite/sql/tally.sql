-- Add to counts. Takes a JSON array of (what, whose, change). One row per stream and state that a batch touched.
INSERT INTO dibs_tallies (what, whose, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (what, whose) DO UPDATE SET n = CAST(n AS INTEGER) + excluded.n;
