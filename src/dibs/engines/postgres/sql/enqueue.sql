-- name: enqueue_one
-- Store one new task that needs no decision. See functions/enqueue_one.sql.
SELECT * FROM {schema}.enqueue_one_{version}(
    $1::bigint, $2::bigint, $3::int, $4::uuid, $5::bytea, $6::int, $7::bigint, $8::bigint, $9::bigint, $10::bigint,
    $11::bigint, $12::bigint, $13::text, $14::bytea, $15::text[], $16::bigint, $17::int[]
);

-- name: enqueue
-- Store new tasks that need no decision. See functions/enqueue.sql.
SELECT * FROM {schema}.enqueue_{version}(
    $1::bigint, $2::bigint, $3::int, $4::boolean, $5::uuid[], $6::int[], $7::bytea[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::bytea[], $17::text[],
    $18::bigint[], $19::bigint, $20::bigint, $21::int[]
);

-- name: enqueue_in
-- Store new tasks that need no decision, in the user's own transaction. See functions/enqueue_in.sql.
SELECT * FROM {schema}.enqueue_in_{version}(
    $1::text, $2::text[], $3::bigint, $4::bigint, $5::int, $6::uuid[], $7::int[], $8::bytea[], $9::int[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], $17::bytea[],
    $18::text[], $19::bigint[], $20::bigint, $21::bigint, $22::int[]
);

-- name: insert_tasks
-- Store unfinished tasks that are in no place. Takes the columns of `task_columns`, and how many better ones of its
-- partition, track and share a task needs to be gated (NULL: it is as it says). Returns how many were in no place. See
-- functions/tasks.sql.
SELECT {schema}.insert_tasks_{version}(
    $1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::boolean[], $15::text[], $16::smallint[], $17::text[],
    $18::bigint[], $19::uuid[], $20::int[], $21::bytea[], $22::bytea[], $23::bytea[], $24::bigint[], $25::int[]
);

-- name: add_blocks
-- Add to the index of id blocks. Takes traits, blocks. A pair that is there is added once more.
INSERT INTO {schema}.blocks (trait, block) SELECT * FROM unnest($1::text[], $2::bigint[]);
