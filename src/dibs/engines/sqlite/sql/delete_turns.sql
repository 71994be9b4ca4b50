-- Turns of shares that have nothing in a stream. Takes the stream, shares (JSON array). Seeks by primary key.
DELETE FROM dibs_turns WHERE stream = ?1 AND share IN (SELECT value FROM json_each(?2));
