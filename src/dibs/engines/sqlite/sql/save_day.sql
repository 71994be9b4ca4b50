-- Widen the range of ids of a day. Takes day, lowest id, highest id. New rows may be prunable: forget what was pruned.
INSERT INTO dibs_days (day, lowest, highest, pruned) VALUES (?, ?, ?, '[]')
ON CONFLICT (day) DO UPDATE SET
    lowest = min(lowest, excluded.lowest), highest = max(highest, excluded.highest), pruned = '[]';
