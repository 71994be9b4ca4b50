-- name: block_of
-- The block of an id: its first ten hex digits, as in `decisions.blocks`. Inlined.
CREATE OR REPLACE FUNCTION {schema}.block_of_{version}(id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ('x' || translate(left(id::text, 11), '-', ''))::bit(40)::bigint
$$;

-- name: first_of_block
-- The lowest id of the sixteen blocks that a block is one of. Inlined.
CREATE OR REPLACE FUNCTION {schema}.first_of_block_{version}(block bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT rpad(lpad(to_hex(block / 16), 9, '0'), 32, '0')::uuid
$$;

-- name: last_of_block
-- The highest id of the sixteen blocks that a block is one of. Inlined.
CREATE OR REPLACE FUNCTION {schema}.last_of_block_{version}(block bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT rpad(lpad(to_hex(block / 16), 9, '0'), 32, 'f')::uuid
$$;

-- name: add_blocks
-- Add to the index of id blocks for new tasks. Takes traits, blocks (NULL: none), now, ids: those of another time than
-- now get a trait for their creation.
CREATE OR REPLACE FUNCTION {schema}.add_blocks_{version}(traits text[], new_blocks bigint[], now bigint, ids uuid[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    slot bigint := now / 256000;
BEGIN
    IF traits IS NOT NULL THEN
        INSERT INTO {schema}.blocks (trait, block) SELECT * FROM unnest(traits, new_blocks);
    END IF;
    INSERT INTO {schema}.blocks (trait, block)
    SELECT DISTINCT 'created ' || lpad(to_hex(slot / 16 * 16), 10, '0'), {schema}.block_of_{version}(t.id) / 16 * 16
    FROM unnest(ids) AS t (id)
    WHERE abs({schema}.block_of_{version}(t.id) - slot) > 4;
END
$$;
