-- name: watches
-- What subscribers want to be written. Takes nothing. Returns a JSON array of (subscriber, until, watch as JSON text).
-- Scans a small table; run only when the generation has changed.
SELECT json_group_array(json_array(subscriber, until, watch)) FROM dibs_watches;

-- name: watch
-- One subscriber. Takes its id. Returns a JSON array of (subscriber, until, watch as JSON text), empty if there is none.
SELECT json_group_array(json_array(subscriber, until, watch)) FROM dibs_watches WHERE subscriber = ?;

-- name: save_watch
-- Save a subscriber. Takes its id, until, watch (JSON).
REPLACE INTO dibs_watches (subscriber, until, watch) VALUES (?, ?, ?);

-- name: forget_watches
-- Delete subscribers whose time is over. Takes now.
DELETE FROM dibs_watches WHERE until <= ?;

-- name: add_events
-- Append events. Takes a JSON array of (at, type, track, queue, task, worker, took, data).
INSERT INTO dibs_events (at, type, track, queue, task, worker, took, data)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(?);

-- name: task_events
-- Append one event for each of some unfinished tasks. Takes the type, now, ids (JSON array), the tracks whose events are
-- wanted (JSON array; 0 among them: all). Seeks by primary key. What a run took is known at its end.
INSERT INTO dibs_events (at, type, track, task, worker, took, data)
SELECT
    ?2, ?1, t.track, t.id, t.worker, iif(?1 = 'task.completed', ?2 - t.started_at, NULL),
    iif(?1 = 'task.submitted', json_patch('{}', json_object('state', t.state, 'due_at', t.due_at)), NULL)
FROM json_each(?3) AS wanted CROSS JOIN dibs_unfinished AS t
WHERE t.id = wanted.value
  AND (EXISTS (SELECT 1 FROM json_each(?4) WHERE value = 0) OR t.track IN (SELECT value FROM json_each(?4)));

-- name: events_horizon
-- Up to which number no event can appear any more. Takes nothing. Returns a JSON array of one number. Transactions
-- come one after the other here: that is the last number given.
SELECT json_group_array(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'dibs_events'), 0));

-- name: events_after
-- Events in order. Takes the number to start after, numbers to skip (JSON array), limit. Returns a JSON array of (n, at,
-- type, track, queue, task, worker, took, data). Reads a range of the primary key.
SELECT json_group_array(json_array(n, at, type, track, queue, task, worker, took, data))
FROM (
    SELECT * FROM dibs_events WHERE n > ?1 AND n NOT IN (SELECT value FROM json_each(?2)) ORDER BY n LIMIT ?3
);

-- name: events_trimmed
-- The number of the last event that was deleted. Takes nothing. Returns a JSON array of it.
SELECT json_group_array(events_trimmed) FROM dibs_store;

-- name: events_to_trim
-- The last of the events to delete. Takes the instant before which they are old, how many to keep whatever their age, and
-- how many to visit. Returns a JSON array of its number, empty if there is none. Reads the start of the primary key.
SELECT json_group_array(n)
FROM (
    SELECT max(n) AS n FROM (SELECT n, at FROM dibs_events ORDER BY n LIMIT ?3)
    WHERE at < ?1 OR n <= (SELECT max(n) FROM dibs_events) - ?2
)
WHERE n IS NOT NULL;

-- name: delete_events
-- Delete events. Takes the number of the last one.
DELETE FROM dibs_events WHERE n <= ?;

-- name: mark_trimmed
-- Remember which events were deleted. Takes the number of the last one.
UPDATE dibs_store SET events_trimmed = max(events_trimmed, ?);
