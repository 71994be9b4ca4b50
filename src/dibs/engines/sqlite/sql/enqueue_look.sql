-- What an enqueue must know first. Takes nothing. Returns the generation and the highest id in the store ('' if none):
-- a new id above it needs no lookup. One seek at the end of each place.
SELECT
    generation,
    max(
        coalesce((SELECT max(id) FROM dibs_tasks), ''),
        coalesce((SELECT max(id) FROM dibs_dead), ''),
        coalesce((SELECT max(highest) FROM dibs_days), '')
    )
FROM dibs_store;
