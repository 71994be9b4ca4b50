-- All queues. Takes nothing. Returns a JSON array of (name, state, settings, epoch). Scans a small table; run only when the
-- generation has changed.
SELECT json_group_array(json_array(name, state, settings, epoch)) FROM dibs_queues;
