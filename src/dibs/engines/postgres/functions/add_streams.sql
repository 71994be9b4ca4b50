-- Make queues and streams that there are not. Takes the names of queues with the settings of new ones, and streams:
-- queue, name, requires (joined by spaces), lane, epoch, fair, band. One that has retired is brought back (a queue
-- that was deleted and made anew). Others learn of it by the next generation.
CREATE OR REPLACE FUNCTION dibs.add_streams(
    queue_names text[], settings bytea,
    queues text[], names text[], requirements text[], lanes int[], epochs int[], fairs boolean[], bands int[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('dibs.queues', 0));
    UPDATE dibs.store SET generation = generation + 1;
    INSERT INTO dibs.queues (name, state, settings, epoch)
    SELECT q, 'active', settings, 1 FROM unnest(queue_names) AS q ON CONFLICT DO NOTHING;
    INSERT INTO dibs.streams (queue, name, requires, lane, epoch, fair, band)
    SELECT s.queue, s.name, string_to_array(s.requires, ' '), s.lane, s.epoch, s.fair, s.band
    FROM unnest(queues, names, requirements, lanes, epochs, fairs, bands)
        AS s (queue, name, requires, lane, epoch, fair, band)
    ON CONFLICT (queue, name, requires, lane, epoch, fair, band) DO UPDATE SET retired = false;
END
$$;
