-- Whether anything is left to be followed up. Takes nothing. Returns a boolean.
SELECT EXISTS (SELECT 1 FROM dibs.errands);
