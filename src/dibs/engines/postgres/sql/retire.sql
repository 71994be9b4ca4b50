-- Streams in which nothing waits, and never will again. Takes streams.
UPDATE dibs.streams SET retired = true WHERE stream = ANY ($1::int[]);
