-- Who leads. Takes nothing. Returns (number, worker, expires_at), or no row.
SELECT number, worker, expires_at FROM dibs_term;
