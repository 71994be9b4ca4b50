-- All queues and streams. Takes nothing. Returns the generation, an array of (name, state, settings, epoch) and an
-- array of (stream, queue, name, requires, lane, epoch, fair, band, retired). Scans two small tables; run only when
-- the generation has changed.
SELECT
    generation,
    (SELECT array_agg(ROW(name, state, settings, epoch)) FROM dibs.queues) AS queues,
    (
        SELECT array_agg(ROW(stream, queue, name, requires, lane, epoch, fair, band, retired)) FROM dibs.streams
    ) AS streams
FROM dibs.store;
