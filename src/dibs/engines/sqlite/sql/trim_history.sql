-- Keep the newest entries of some histories. Takes tasks (JSON array), how many to keep.
DELETE FROM dibs_history WHERE (task, n) IN (
    SELECT h.task, h.n FROM json_each(?1) AS wanted CROSS JOIN dibs_history AS h
    WHERE h.task = wanted.value
      AND h.n <= (SELECT n FROM dibs_history WHERE task = wanted.value ORDER BY n DESC LIMIT 1 OFFSET ?2)
);
