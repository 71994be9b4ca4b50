-- name: enqueue_in
-- `enqueue` as part of a user's transaction. Takes the channel and what to send there when it commits, then the
-- parameters of `enqueue`; all or none are stored. Returns the status, now, the ids that were stored. The status may
-- also be 'known' (some are: the slow path finds which), 'unsuitable' (`told` names what is wrong with the
-- transaction), or 'failed' (with SQLSTATE and message): a failure in here leaves the transaction as it was.
CREATE OR REPLACE FUNCTION {schema}.enqueue_in_{version}(
    channel text, payloads text[],
    at bigint, generation_of bigint, first_day int,
    ids uuid[], drafts int[], all_args bytea[],
    tracks int[], offsets bigint[], delays bigint[], instants bigint[], rerank_ins bigint[], lease_fors bigint[],
    all_expires_at bigint[], partitions text[], all_facts bytea[],
    traits text[], blocks bigint[], first_block bigint, last_block bigint, watched int[],
    OUT status text, OUT now bigint, OUT stored uuid[], OUT code text, OUT told text
)
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        status := 'unsuitable';
        told := current_setting('transaction_isolation');
        RETURN;
    END IF;
    IF current_setting('transaction_read_only') = 'on' THEN
        status := 'unsuitable';
        told := 'read-only';
        RETURN;
    END IF;
    SELECT e.status, e.now, e.stored INTO status, now, stored
    FROM {schema}.enqueue_{version}(
        at, generation_of, first_day, true, ids, drafts, all_args, tracks, offsets, delays, instants,
        rerank_ins, lease_fors, all_expires_at, partitions, all_facts, traits, blocks, first_block, last_block, watched
    ) AS e;
    IF status = 'done' THEN
        PERFORM pg_notify(channel, p.payload) FROM unnest(payloads) AS p (payload);
    END IF;
EXCEPTION
    WHEN SQLSTATE 'DB001' THEN
        status := 'known';
    WHEN OTHERS THEN
        status := 'failed';
        code := SQLSTATE;
        told := SQLERRM;
END
$$;
