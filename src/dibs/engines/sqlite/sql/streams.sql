-- All streams. Takes nothing. Returns a JSON array of (stream, queue, name, requires, lane, epoch, fair). Scans a small
-- table; run only when the generation has changed.
SELECT json_group_array(json_array(stream, queue, name, requires, lane, epoch, fair)) FROM dibs_streams;
