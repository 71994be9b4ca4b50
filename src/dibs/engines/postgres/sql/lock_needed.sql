-- Lock tasks that new ones wait for. Takes ids, in order. Returns id, state.
SELECT * FROM dibs.lock_needed($1::uuid[]);
