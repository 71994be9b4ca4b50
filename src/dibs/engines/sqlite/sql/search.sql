-- name: newest
-- Tasks downwards by id. Takes the id to start below (NULL: the newest), limit, and whether unfinished, dead and
-- finished ones are wanted. Returns a JSON array of (id, track, state, worker). Reads a range of each place. The latest
-- days most likely have enough (`near` is the last of these): then the others are read only from there on, which is a
-- seek each.
SELECT json_group_array(json_array(id, track, state, worker))
FROM (
    WITH near (id) AS (
        SELECT f.id
        FROM (SELECT day FROM dibs_days WHERE ?5 AND lowest < coalesce(?1, char(1114111)) ORDER BY lowest DESC LIMIT 3) AS d
        CROSS JOIN dibs_finished AS f
        WHERE f.day = d.day AND f.id < coalesce(?1, char(1114111)) AND f.id >= coalesce((
            SELECT id FROM dibs_finished
            WHERE day = d.day AND id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT 1 OFFSET ?2 - 1
        ), '')
        ORDER BY f.id DESC LIMIT 1 OFFSET ?2 - 1
    )
    SELECT * FROM (
        SELECT id, track, state, worker FROM dibs_tasks
        WHERE ?3 AND id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2
    )
    UNION ALL
    SELECT * FROM (
        SELECT id, track, state, worker FROM dibs_dead
        WHERE ?4 AND id < coalesce(?1, char(1114111)) ORDER BY id DESC LIMIT ?2
    )
    UNION ALL
    SELECT f.id, f.track, f.state, f.worker FROM dibs_days AS d CROSS JOIN dibs_finished AS f
    WHERE ?5 AND d.lowest < coalesce(?1, char(1114111)) AND f.day = d.day AND f.id < coalesce(?1, char(1114111))
      AND f.id >= coalesce((
          SELECT id FROM dibs_finished
          WHERE day = d.day AND id < coalesce(?1, char(1114111)) AND id >= coalesce((SELECT id FROM near), '')
          ORDER BY id DESC LIMIT 1 OFFSET ?2 - 1
      ), (SELECT id FROM near), '')
    ORDER BY id DESC LIMIT ?2
);

-- name: newest_members
-- Members of a workflow downwards by id. Takes the same as `newest`, and the workflow. Returns the same. Merges ranges
-- of the three indexes of members.
SELECT json_group_array(json_array(id, track, state, worker))
FROM (
    SELECT id, track, state, worker FROM dibs_tasks
    WHERE ?3 AND workflow = ?6 AND id < coalesce(?1, char(1114111))
    UNION ALL
    SELECT id, track, state, worker FROM dibs_dead
    WHERE ?4 AND workflow = ?6 AND id < coalesce(?1, char(1114111))
    UNION ALL
    SELECT id, track, state, worker FROM dibs_finished
    WHERE ?5 AND workflow = ?6 AND id < coalesce(?1, char(1114111))
    ORDER BY id DESC LIMIT ?2
);

-- name: oldest_tasks
-- Unfinished tasks upwards by id. Takes the id to start after (NULL: the oldest), limit. Returns a JSON array of ids.
-- Reads a range of the primary key.
SELECT json_group_array(id)
FROM (SELECT id FROM dibs_tasks WHERE id > coalesce(?1, '') ORDER BY id LIMIT ?2);

-- name: ids_beyond
-- Tasks whose ids no search reaches: blobs, or texts that are not UTF-8. Takes a text that sorts after found id, limit.
-- Returns a JSON array of ids. The end of each place, and of each day.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks WHERE id >= ?1
    UNION ALL SELECT id FROM dibs_dead WHERE id >= ?1
    UNION ALL SELECT f.id FROM dibs_days AS d CROSS JOIN dibs_finished AS f WHERE f.day = d.day AND f.id >= ?1
    LIMIT ?2
);
