-- name: watch
-- One subscriber. Takes its id. Returns subscriber, until, watch (JSON).
SELECT subscriber, until, watch FROM {schema}.watches WHERE subscriber = $1;

-- name: save_watch
-- Save a subscriber. Takes its id, until, watch (JSON).
INSERT INTO {schema}.watches (subscriber, until, watch) VALUES ($1, $2, $3)
ON CONFLICT (subscriber) DO UPDATE SET until = excluded.until, watch = excluded.watch;

-- name: forget_watches
-- Delete subscribers whose time is over. Takes now.
DELETE FROM {schema}.watches WHERE until <= $1;

-- name: add_events
-- Append events. Takes at, type, track, queue, task, worker, took, data: columns. See functions/events.sql.
SELECT {schema}.add_events_{version}(
    $1::bigint[], $2::text[], $3::int[], $4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[]
);

-- name: task_events
-- Append one event for each of some unfinished tasks. Takes the type, now, ids, the tracks whose events are
-- wanted (0: all). See functions/events.sql.
SELECT {schema}.task_events_{version}($1::text, $2::bigint, $3::uuid[], $4::int[]);

-- name: events_horizon
-- Up to which number no event can appear any more: the last one given, or what it was when the oldest transaction that
-- has appended events began to, if that is still open. Takes nothing. Returns a number. The last number is read before
-- the locks: a transaction that takes its lock in between appends later numbers. Locks hold 31 bits of a number.
SELECT coalesce(
    (
        SELECT min(s.last - ((s.last - l.objid::bigint) & 2147483647)) FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = ((hashtext('{schema_text}.events') & 2147483647)::text)::oid
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    ),
    s.last
)
FROM (
    SELECT last_value - (NOT is_called)::int AS last FROM {schema}.events_n_seq OFFSET 0
) AS s;

-- name: events_after
-- Events in order. Takes the number to start after, numbers to skip, limit. Returns n, at, type, track, queue, task,
-- worker, took, data. Reads a range of the primary key.
SELECT n, at, type, track, queue, task, worker, took, data FROM {schema}.events
WHERE n > $1::bigint AND n <> ALL ($2::bigint[]) ORDER BY n LIMIT $3::int;

-- name: events_trimmed
-- The number of the last event that was deleted. Takes nothing.
SELECT events_trimmed FROM {schema}.store;

-- name: events_to_trim
-- The last of the events to delete. Takes the instant before which they are old, how many to keep whatever their age, and
-- how many to visit. Returns its number, if there is one. Reads the start of the primary key.
SELECT n FROM (
    SELECT max(e.n) AS n FROM (SELECT n, at FROM {schema}.events ORDER BY n LIMIT $3::int) AS e
    WHERE e.at < $1::bigint OR e.n <= (SELECT max(n) FROM {schema}.events) - $2::bigint
) AS last
WHERE n IS NOT NULL;

-- name: delete_events
-- Delete events. Takes the number of the last one.
DELETE FROM {schema}.events WHERE n <= $1::bigint;

-- name: mark_trimmed
-- Remember which events were deleted. Takes the number of the last one.
UPDATE {schema}.store SET events_trimmed = greatest(events_trimmed, $1::bigint);
