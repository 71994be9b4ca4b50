-- name: newest
-- Of the newest tasks of a range of ids, those that are wanted. Takes the id to start below (NULL: the newest), the
-- lowest id, how many to visit in each place; whether unfinished, dead, finished or only cancelled ones are wanted;
-- states that are not wanted (JSON array), tracks (JSON array), worker, creation from and until, three texts that are in
-- the facts (all but the first may be NULL: anything). Returns a JSON array of (id, NULL), in no order, and for each
-- place (the lowest id visited, how many were visited). Reads a range of each place. The latest days most likely have
-- enough (`near` is the last of these): then the others are read only from there on, which is a seek each. What is
-- wanted is compared inside the bounded reads, so that no row beyond the bound is read, and no facts unless needed.
SELECT json_group_array(json_array(id, visited))
FROM (
    WITH near (id) AS (
        SELECT f.id
        FROM (
            SELECT day FROM dibs_days
            WHERE ?6 AND lowest < coalesce(?1, char(1114111)) AND highest >= ?2 ORDER BY lowest DESC LIMIT 3
        ) AS d
        CROSS JOIN dibs_finished AS f
        WHERE f.day = d.day AND f.id < coalesce(?1, char(1114111)) AND f.id >= coalesce((
            SELECT id FROM dibs_finished
            WHERE day = d.day AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3 - 1
        ), ?2)
        ORDER BY f.id DESC LIMIT 1 OFFSET ?3 - 1
    )
    SELECT id, NULL AS visited
    FROM (
        SELECT
            id,
            state NOT IN (SELECT value FROM json_each(?8)) AND (?9 IS NULL OR track IN (SELECT value FROM json_each(?9)))
            AND (?10 IS NULL OR worker = ?10) AND (?11 IS NULL OR created_at >= ?11)
            AND (?12 IS NULL OR created_at < ?12) AND (?13 IS NULL OR instr(facts, ?13))
            AND (?14 IS NULL OR instr(facts, ?14)) AND (?15 IS NULL OR instr(facts, ?15)) AS is_wanted
        FROM dibs_unfinished WHERE ?4 AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    WHERE is_wanted
    UNION ALL
    SELECT min(id), count(*)
    FROM (
        SELECT id FROM dibs_tasks
        WHERE ?4 AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    UNION ALL
    SELECT id, NULL
    FROM (
        SELECT
            id,
            state NOT IN (SELECT value FROM json_each(?8)) AND (?9 IS NULL OR track IN (SELECT value FROM json_each(?9)))
            AND (?10 IS NULL OR worker = ?10) AND (?11 IS NULL OR created_at >= ?11)
            AND (?12 IS NULL OR created_at < ?12) AND (?13 IS NULL OR instr(facts, ?13))
            AND (?14 IS NULL OR instr(facts, ?14)) AND (?15 IS NULL OR instr(facts, ?15)) AS is_wanted
        FROM dibs_dead WHERE ?5 AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    WHERE is_wanted
    UNION ALL
    SELECT min(id), count(*)
    FROM (
        SELECT id FROM dibs_dead
        WHERE ?5 AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    UNION ALL
    SELECT id, NULL
    FROM (
        SELECT
            id,
            state NOT IN (SELECT value FROM json_each(?8)) AND (?9 IS NULL OR track IN (SELECT value FROM json_each(?9)))
            AND (?10 IS NULL OR worker = ?10) AND (?11 IS NULL OR created_at >= ?11)
            AND (?12 IS NULL OR created_at < ?12) AND (?13 IS NULL OR instr(facts, ?13))
            AND (?14 IS NULL OR instr(facts, ?14)) AND (?15 IS NULL OR instr(facts, ?15)) AS is_wanted
        FROM dibs_finished INDEXED BY dibs_cancelled
        WHERE ?7 AND state = 'cancelled' AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    WHERE is_wanted
    UNION ALL
    SELECT min(id), count(*)
    FROM (
        SELECT id FROM dibs_finished INDEXED BY dibs_cancelled
        WHERE ?7 AND state = 'cancelled' AND id < coalesce(?1, char(1114111)) AND id >= ?2 ORDER BY id DESC LIMIT ?3
    )
    UNION ALL
    SELECT id, NULL
    FROM (
        SELECT
            f.id,
            f.state NOT IN (SELECT value FROM json_each(?8)) AND (?9 IS NULL OR f.track IN (SELECT value FROM json_each(?9)))
            AND (?10 IS NULL OR f.worker = ?10) AND (?11 IS NULL OR f.created_at >= ?11)
            AND (?12 IS NULL OR f.created_at < ?12) AND (?13 IS NULL OR instr(f.facts, ?13))
            AND (?14 IS NULL OR instr(f.facts, ?14)) AND (?15 IS NULL OR instr(f.facts, ?15)) AS is_wanted
        FROM dibs_days AS d CROSS JOIN dibs_finished AS f
        WHERE ?6 AND d.lowest < coalesce(?1, char(1114111)) AND d.highest >= ?2 AND f.day = d.day
              AND f.id < coalesce(?1, char(1114111)) AND f.id >= coalesce((
                  SELECT id FROM dibs_finished
                  WHERE day = d.day AND id < coalesce(?1, char(1114111)) AND id >= coalesce((SELECT id FROM near), ?2)
                  ORDER BY id DESC LIMIT 1 OFFSET ?3 - 1
              ), (SELECT id FROM near), ?2)
        ORDER BY f.id DESC LIMIT ?3
    )
    WHERE is_wanted
    UNION ALL
    SELECT min(id), count(*)
    FROM (
        SELECT f.id
        FROM dibs_days AS d CROSS JOIN dibs_finished AS f
        WHERE ?6 AND d.lowest < coalesce(?1, char(1114111)) AND d.highest >= ?2 AND f.day = d.day
              AND f.id < coalesce(?1, char(1114111)) AND f.id >= coalesce((
                  SELECT id FROM dibs_finished
                  WHERE day = d.day AND id < coalesce(?1, char(1114111)) AND id >= coalesce((SELECT id FROM near), ?2)
                  ORDER BY id DESC LIMIT 1 OFFSET ?3 - 1
              ), (SELECT id FROM near), ?2)
        ORDER BY f.id DESC LIMIT ?3
    )
);

-- name: unfinished_in
-- Unfinished tasks of some states, downwards by id. Takes the id to start below (NULL: the newest), limit, a JSON array
-- of (track, state). Returns a JSON array of ids. Reads the newest of each track in dibs_later and dibs_blocked, all
-- running tasks in dibs_running, and all pending tasks of the tracks in dibs_pending: the caller knows how many.
SELECT json_group_array(id)
FROM (
    SELECT id
    FROM (
        SELECT t.id FROM json_each(?3) AS wanted CROSS JOIN dibs_tasks AS t INDEXED BY dibs_later
        WHERE wanted.value ->> 1 IN ('scheduled', 'retrying') AND t.due_at IS NOT NULL
          AND t.track = wanted.value ->> 0 AND t.state = wanted.value ->> 1 AND t.id < coalesce(?1, char(1114111))
          AND t.id >= coalesce((
              SELECT id FROM dibs_tasks INDEXED BY dibs_later
              WHERE due_at IS NOT NULL AND track = wanted.value ->> 0 AND state = wanted.value ->> 1
                AND id < coalesce(?1, char(1114111))
              ORDER BY id DESC LIMIT 1 OFFSET ?2 - 1
          ), '')
        UNION ALL
        SELECT t.id FROM json_each(?3) AS wanted CROSS JOIN dibs_tasks AS t INDEXED BY dibs_blocked
        WHERE wanted.value ->> 1 = 'blocked' AND t.state = 'blocked' AND t.track = wanted.value ->> 0
          AND t.id < coalesce(?1, char(1114111))
          AND t.id >= coalesce((
              SELECT id FROM dibs_tasks INDEXED BY dibs_blocked
              WHERE state = 'blocked' AND track = wanted.value ->> 0 AND id < coalesce(?1, char(1114111))
              ORDER BY id DESC LIMIT 1 OFFSET ?2 - 1
          ), '')
        UNION ALL
        SELECT t.id FROM json_each(?3) AS wanted CROSS JOIN dibs_pending AS t
        WHERE wanted.value ->> 1 = 'pending' AND t.track = wanted.value ->> 0
          AND t.id < coalesce(?1, char(1114111))
        UNION ALL
        SELECT t.id FROM dibs_running AS t
        WHERE t.id < coalesce(?1, char(1114111)) AND t.track IN (
            SELECT value ->> 0 FROM json_each(?3) WHERE value ->> 1 = 'running'
        )
    )
    ORDER BY id DESC LIMIT ?2
);

-- name: blocks
-- The newest blocks of each of some traits. Takes traits (JSON array), the block to start below, limit for each. Returns a
-- JSON array of (position of the trait, block). Reads a range of the primary key for each.
SELECT json_group_array(json_array(wanted.key, b.block))
FROM json_each(?1) AS wanted CROSS JOIN dibs_blocks AS b
WHERE b.trait = wanted.value AND b.block < ?2 AND b.block >= coalesce((
    SELECT block FROM dibs_blocks WHERE trait = wanted.value AND block < ?2 ORDER BY block DESC LIMIT 1 OFFSET ?3 - 1
), -1);

-- name: blocks_between
-- The blocks of a range of traits. Takes the first trait, the last, limit. Returns a JSON array of blocks. Reads a range
-- of the primary key.
SELECT json_group_array(block) FROM (SELECT block FROM dibs_blocks WHERE trait BETWEEN ?1 AND ?2 LIMIT ?3);

-- name: blocks_after
-- The index of id blocks, in order. Takes trait and block to start after; the first and the last of the blocks that must
-- stay; limit. Returns a JSON array of (trait, block, 1 if the block has no task and may go). Reads a range of the
-- primary key, and seeks it in each place, and in each day that may have it: the sixteen
-- blocks that it is one of, which some traits are kept for.
SELECT json_group_array(json_array(trait, block, is_empty))
FROM (
    SELECT
        trait, block,
        block NOT BETWEEN ?3 AND ?4
        AND NOT EXISTS (SELECT 1 FROM dibs_tasks WHERE id BETWEEN start AND start || 'g')
        AND NOT EXISTS (SELECT 1 FROM dibs_dead WHERE id BETWEEN start AND start || 'g')
        AND NOT EXISTS (
            SELECT 1 FROM dibs_days AS d CROSS JOIN dibs_finished AS f
            WHERE d.lowest <= start || 'g' AND d.highest >= start AND f.day = d.day
              AND f.id BETWEEN start AND start || 'g'
        ) AS is_empty
    FROM (
        SELECT trait, block, printf('%08x-%x', block >> 8, block >> 4 & 15) AS start
        FROM dibs_blocks WHERE (trait, block) > (?1, ?2) ORDER BY trait, block LIMIT ?5
    )
);

-- name: delete_blocks
-- Delete from the index of id blocks. Takes a JSON array of (trait, block). Seeks by primary key, of
-- which IN would use half if it were compared with values that are not from a table.
DELETE FROM dibs_blocks WHERE (trait, block) IN (
    SELECT b.trait, b.block FROM json_each(?) AS wanted CROSS JOIN dibs_blocks AS b
    WHERE b.trait = wanted.value ->> 0 AND b.block = wanted.value ->> 1
);

-- name: newest_members
-- Members of a workflow downwards by id. Takes the same as `newest`, and the workflow. Returns the same. Merges ranges
-- of the three indexes of members.
SELECT json_group_array(json_array(id, track, state, worker))
FROM (
    SELECT id, track, state, worker FROM dibs_unfinished
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
