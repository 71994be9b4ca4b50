-- Note whether a worker's process holds its lock. Takes the worker, since when sessions last at its server, or NULL.
UPDATE dibs.workers SET presence = $2::timestamptz WHERE id = $1 AND presence IS DISTINCT FROM $2::timestamptz;
