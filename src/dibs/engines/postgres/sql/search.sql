-- name: newest
-- Tasks downwards by id. Takes the id to start below (NULL: the newest), limit, and whether unfinished, dead and
-- finished ones are wanted. Returns id, track, state, worker. Reads a range of each place.
SELECT * FROM (
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.tasks AS t
        WHERE $3::boolean AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.dead AS t
        WHERE $4::boolean AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.finished AS t
        WHERE $5::boolean AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
) AS every
ORDER BY id DESC LIMIT $2::int;

-- name: newest_members
-- Members of a workflow downwards by id. Takes the same as `newest`, and the workflow. Returns the same. Reads a range
-- of each index of members.
SELECT * FROM (
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.tasks AS t
        WHERE $3::boolean AND t.workflow = $6::uuid AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.dead AS t
        WHERE $4::boolean AND t.workflow = $6::uuid AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
    UNION ALL
    (
        SELECT t.id, t.track, t.state, t.worker FROM {schema}.finished AS t
        WHERE $5::boolean AND t.workflow = $6::uuid AND t.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY t.id DESC LIMIT $2::int
    )
) AS every
ORDER BY id DESC LIMIT $2::int;

-- name: oldest_tasks
-- Unfinished tasks upwards by id. Takes the id to start after (NULL: the oldest), limit. Returns ids. Reads a range of
-- the primary key.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY t.id LIMIT $2::int;
