-- Since when the server runs at which a worker's process holds the worker's lock (see sql/hold.sql), NULL if it holds
-- none. Locks end with their server: who has not come back to a new one is not missed there.
ALTER TABLE dibs.workers ADD COLUMN presence timestamptz;
