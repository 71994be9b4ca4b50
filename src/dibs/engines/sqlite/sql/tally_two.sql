-- tally.sql for exactly two counts. Takes what, whose, change, twice.
INSERT INTO dibs_tallies (what, whose, n) VALUES (?, ?, ?), (?, ?, ?)
ON CONFLICT (what, whose) DO UPDATE SET n = CAST(n AS INTEGER) + excluded.n;
