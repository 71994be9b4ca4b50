-- Unfinished members of a workflow, upwards by id, locked. Takes the workflow, the id to begin after, how many.
-- Returns the columns of find.sql. Reads a range of `members`.
SELECT
    t.id, t.stream, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM dibs.tasks AS t WHERE t.workflow = $1::uuid AND t.id > $2::uuid ORDER BY t.id LIMIT $3::int FOR UPDATE;
