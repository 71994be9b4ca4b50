-- Ring, when the transaction commits. Takes the channel, messages.
SELECT pg_notify($1::text, m.message) FROM unnest($2::text[]) AS m (message);
