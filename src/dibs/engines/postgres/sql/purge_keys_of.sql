-- Free the idempotency keys of a task that can't be read: which they are is among what can't. Takes its id. Reads all keys;
-- only when somebody purges such a task.
DELETE FROM dibs.keys WHERE task = $1::uuid;
