-- What tells this store from all others. Takes nothing. Returns a text.
SELECT identity FROM dibs.store;
