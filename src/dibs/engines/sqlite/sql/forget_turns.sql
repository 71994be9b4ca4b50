-- Forget turns in a stream. Takes the stream, how many. Seeks by primary key.
DELETE FROM dibs_turns WHERE stream = ?1 AND share IN (SELECT share FROM dibs_turns WHERE stream = ?1 LIMIT ?2);
