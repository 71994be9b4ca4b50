-- Whether finished tasks lie outside of the partitions for days, and whether a worker has ever led. Takes nothing.
SELECT
    EXISTS (SELECT 1 FROM dibs.finished_other) AS others,
    EXISTS (SELECT 1 FROM dibs.term) AS led;
