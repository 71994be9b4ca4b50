-- Turns that the clock has passed go by name from now on. Takes streams (JSON array), the clock. A range of
-- dibs_turn_order each.
UPDATE dibs_turns SET tag = 0
WHERE stream IN (SELECT value FROM json_each(?1)) AND tag > 0 AND tag <= ?2;
