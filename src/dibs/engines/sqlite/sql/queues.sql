-- name: generation
-- The generation of queues and tracks. Takes nothing. Returns one row.
SELECT generation FROM dibs_store;

-- name: next_generation
-- Make every process read queues and tracks again. Takes and returns nothing.
UPDATE dibs_store SET generation = generation + 1;

-- name: identity
-- The random id of this store. Takes nothing. Returns it in a JSON array.
SELECT json_group_array(identity) FROM dibs_store;

-- name: queues
-- All queues. Takes nothing. Returns a JSON array of (name, state, settings, epoch). Scans a small table; run only when
-- the generation has changed.
SELECT json_group_array(json_array(name, state, settings, epoch)) FROM dibs_queues;

-- name: save_queue
-- Save a queue. Takes name, state, settings (JSON), epoch. The bucket of start tokens stays as it was; a new epoch
-- makes the rerank chore start over.
INSERT INTO dibs_queues (name, state, settings, epoch) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    state = excluded.state,
    settings = excluded.settings,
    rerank_due = iif(epoch = excluded.epoch, rerank_due, NULL),
    rerank_id = iif(epoch = excluded.epoch, rerank_id, NULL),
    epoch = excluded.epoch;

-- name: delete_queue
-- Delete a queue's row. Takes its name. Its tracks stay: ended tasks name them.
DELETE FROM dibs_queues WHERE name = ?;

-- name: tracks
-- All tracks. Takes nothing. Returns a JSON array of (track, queue, name, requires, lane, epoch, fair, band). Scans a
-- small table; run only when the generation has changed.
SELECT json_group_array(json_array(track, queue, name, requires, lane, epoch, fair, band)) FROM dibs_tracks;

-- name: add_track
-- A new track. Takes queue, name, requires (JSON array), lane, epoch, fair, band. Returns its number.
INSERT INTO dibs_tracks (queue, name, requires, lane, epoch, fair, band) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING track;
