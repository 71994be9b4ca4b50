-- name: newest
-- Of the newest tasks of some ranges of ids, those that are wanted. See functions/search.sql.
SELECT * FROM {schema}.newest_{version}(
    $1::uuid[], $2::uuid[], $3::int, $4::boolean, $5::boolean, $6::boolean, $7::boolean, $8::text[], $9::int[],
    $10::text, $11::bigint, $12::bigint, $13::bytea, $14::bytea, $15::bytea
);

-- name: unfinished_in
-- Unfinished tasks of some states, downwards by id. See functions/search.sql.
SELECT * FROM {schema}.unfinished_in_{version}($1::uuid, $2::int, $3::int[], $4::text[]);

-- name: blocks
-- The newest blocks of each of some traits. Takes traits, the block to start below, limit for each. Returns the position
-- of the trait, from 0, and block. Reads a range of `block_traits` for each.
SELECT w.n::int - 1, b.block FROM unnest($1::text[]) WITH ORDINALITY AS w (trait, n)
CROSS JOIN LATERAL (
    SELECT DISTINCT k.block FROM {schema}.blocks AS k WHERE k.trait = w.trait AND k.block < $2::bigint
    ORDER BY k.block DESC LIMIT $3::int
) AS b;

-- name: blocks_between
-- The blocks of a range of traits. Takes the first trait, the last, limit. Returns blocks. Reads a range of `block_traits`.
SELECT block FROM {schema}.blocks WHERE trait BETWEEN $1::text AND $2::text ORDER BY trait, block LIMIT $3::int;

-- name: blocks_after
-- The index of id blocks, in order. Takes trait and block to start after; the first and the last of the blocks that must
-- stay; limit. Returns trait, block, whether the block has no task and may go. Reads a range of `block_traits`, and seeks
-- it in each place and day: the sixteen blocks that it is one of, which some traits are kept for.
SELECT
    b.trait, b.block,
    b.block NOT BETWEEN $3::bigint AND $4::bigint
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.tasks AS t WHERE t.id >= {schema}.first_of_block_{version}(b.block)
          AND t.id <= {schema}.last_of_block_{version}(b.block)
    )
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.dead AS t WHERE t.id >= {schema}.first_of_block_{version}(b.block)
          AND t.id <= {schema}.last_of_block_{version}(b.block)
    )
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.finished AS t WHERE t.id >= {schema}.first_of_block_{version}(b.block)
          AND t.id <= {schema}.last_of_block_{version}(b.block)
    ) AS is_empty
FROM (
    SELECT DISTINCT k.trait, k.block FROM {schema}.blocks AS k WHERE (k.trait, k.block) > ($1::text, $2::bigint)
    ORDER BY k.trait, k.block LIMIT $5::int
) AS b
ORDER BY b.trait, b.block;

-- name: delete_blocks
-- Delete from the index of id blocks. Takes traits, blocks. One that has a task by now stays: the task and the pair came
-- together, so this statement sees both or none.
DELETE FROM {schema}.blocks AS b USING unnest($1::text[], $2::bigint[]) AS gone (trait, block)
WHERE b.trait = gone.trait AND b.block = gone.block
  AND NOT EXISTS (
      SELECT 1 FROM {schema}.tasks AS t WHERE t.id >= {schema}.first_of_block_{version}(gone.block)
        AND t.id <= {schema}.last_of_block_{version}(gone.block)
  )
  AND NOT EXISTS (
      SELECT 1 FROM {schema}.dead AS t WHERE t.id >= {schema}.first_of_block_{version}(gone.block)
        AND t.id <= {schema}.last_of_block_{version}(gone.block)
  )
  AND NOT EXISTS (
      SELECT 1 FROM {schema}.finished AS t WHERE t.id >= {schema}.first_of_block_{version}(gone.block)
        AND t.id <= {schema}.last_of_block_{version}(gone.block)
  );

-- name: newest_members
-- Members of a workflow downwards by id. See functions/search.sql.
SELECT * FROM {schema}.newest_members_{version}($1::uuid, $2::int, $3::boolean, $4::boolean, $5::boolean, $6::uuid);

-- name: oldest_tasks
-- Unfinished tasks upwards by id. Takes the id to start after (NULL: the oldest), limit. Returns ids. Reads a range of
-- the primary key.
SELECT t.id FROM {schema}.tasks AS t
WHERE t.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY t.id LIMIT $2::int;
