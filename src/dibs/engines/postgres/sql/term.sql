-- Who leads, for as long as this transaction lasts. Takes nothing. Returns number, worker, or no row.
SELECT number, worker FROM dibs.term FOR SHARE;
