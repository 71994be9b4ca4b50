-- Unfinished tasks upwards by id. Takes the id to begin after, how many. Returns the columns of find.sql. Reads a range of
-- the primary key.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t WHERE t.id > $1::uuid ORDER BY t.id LIMIT $2::int;
