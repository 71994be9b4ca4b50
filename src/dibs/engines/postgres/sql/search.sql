-- name: search
-- Tasks downwards by id. Takes the id to start with, limit, and whether unfinished, dead and finished ones are wanted.
-- Returns the columns of `find`. Reads a range of each place.
SELECT * FROM (
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at,
            t.started_at, t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args,
            t.facts, t.created_at
        FROM {schema}.tasks AS t
        WHERE $3::boolean AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
            NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
            t.args, t.facts, t.created_at
        FROM {schema}.dead AS t
        WHERE $4::boolean AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
            NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
            t.args, t.facts, t.created_at
        FROM {schema}.finished AS t
        WHERE $5::boolean AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
) AS every
ORDER BY id DESC LIMIT $2::int;

-- name: search_members
-- Members of a workflow downwards by id. Takes the id to start with, limit, whether unfinished, dead and finished ones
-- are wanted, and the workflow. Returns the columns of `find`. Reads a range of each index of members.
SELECT * FROM (
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at,
            t.started_at, t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args,
            t.facts, t.created_at
        FROM {schema}.tasks AS t
        WHERE $3::boolean AND t.workflow = $6::uuid AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
            NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
            t.args, t.facts, t.created_at
        FROM {schema}.dead AS t
        WHERE $4::boolean AND t.workflow = $6::uuid AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT
            t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease,
            NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.progress, t.finished_at, t.result,
            t.args, t.facts, t.created_at
        FROM {schema}.finished AS t
        WHERE $5::boolean AND t.workflow = $6::uuid AND t.id <= $1::uuid ORDER BY t.id DESC LIMIT $2::int
    )
) AS every
ORDER BY id DESC LIMIT $2::int;

-- name: oldest_tasks
-- Unfinished tasks upwards by id. Takes the id to start after, limit. Returns the columns of `find`. Reads a range of
-- the primary key.
SELECT
    t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, t.lease_expires_at, t.started_at,
    t.worker, t.sequence, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, t.facts, t.created_at
FROM {schema}.tasks AS t WHERE t.id > $1::uuid ORDER BY t.id LIMIT $2::int;
