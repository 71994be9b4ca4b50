-- A queue as it is now. Takes name, state, settings (JSON), epoch.
INSERT INTO dibs.queues (name, state, settings, epoch) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET state = excluded.state, settings = excluded.settings, epoch = excluded.epoch;
