-- Store finished tasks one by one (cancelled ones; completions have a bulk statement, complete.sql).
-- Takes a JSON array of ended tasks (the columns of `ended_columns`).
REPLACE INTO dibs_finished (
    id, day, stream, state, rank, ready_at, lease, started_at, finished_at, worker, sequence, progress, result, args,
    facts, workflow
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14,
    value ->> 15
FROM json_each(?);
