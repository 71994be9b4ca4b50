-- Partitions for today and tomorrow, in a new store. Takes nothing.
SELECT dibs.make_day(floor(extract(epoch FROM now()) / 86400)::int + n) FROM generate_series(0, 1) AS n;
