-- Take or renew the term. Takes number, worker, expires_at.
REPLACE INTO dibs_term (one, number, worker, expires_at) VALUES (1, ?, ?, ?);
