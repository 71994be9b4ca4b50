-- Add entries to histories. Takes tasks, entries; later entries get higher numbers. The tasks are locked.
INSERT INTO dibs.history (task, n, entry)
SELECT new.task, coalesce((SELECT max(h.n) FROM dibs.history AS h WHERE h.task = new.task), 0) + new.k, new.entry
FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS new (task, entry, k);
