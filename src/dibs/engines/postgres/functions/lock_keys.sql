-- Have idempotency keys to oneself until the transaction ends. Takes queues, keys, in order. Returns those that stand
-- for something. One that is not there is put there first, to be held by nobody, so that two who want it meet here.
CREATE OR REPLACE FUNCTION dibs.lock_keys(queues text[], names text[])
RETURNS TABLE (queue text, key text, task uuid, fingerprint text, held_until bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fresh text[];
BEGIN
    WITH put AS (
        INSERT INTO dibs.keys AS k (queue, key, task, fingerprint, held_until)
        SELECT w.queue, w.key, '00000000-0000-0000-0000-000000000000', '', 0
        FROM unnest(queues, names) WITH ORDINALITY AS w (queue, key, k) ORDER BY w.k
        ON CONFLICT DO NOTHING
        RETURNING k.queue || ' ' || k.key AS name
    )
    SELECT array_agg(p.name) INTO fresh FROM put AS p;
    IF cardinality(fresh) = cardinality(queues) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT k.queue, k.key, k.task, k.fingerprint, k.held_until
    FROM dibs.keys AS k, unnest(queues, names) AS w (queue, key)
    WHERE k.queue = w.queue AND k.key = w.key AND k.queue || ' ' || k.key <> ALL (coalesce(fresh, '{}'))
    ORDER BY k.queue, k.key FOR UPDATE OF k;
END
$$;
