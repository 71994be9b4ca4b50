-- All queues and streams. Takes nothing. Returns one row of two JSON arrays: (name, state, settings, epoch) and
-- (stream, queue, name, requires, lane, epoch, fair). Scans two small tables; run only when the generation has changed.
SELECT
    (SELECT json_group_array(json_array(name, state, settings, epoch)) FROM dibs_queues),
    (SELECT json_group_array(json_array(stream, queue, name, requires, lane, epoch, fair)) FROM dibs_streams);
