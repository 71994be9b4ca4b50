-- Tasks whose ids lie beyond all that a search comes to: blobs, or texts that are no UTF-8. Takes what sorts after every
-- id, how many. Returns a JSON array of ids. The end of each place, and of each day.
SELECT json_group_array(id)
FROM (
    SELECT id FROM dibs_tasks WHERE id >= ?1
    UNION ALL SELECT id FROM dibs_dead WHERE id >= ?1
    UNION ALL SELECT f.id FROM dibs_days AS d CROSS JOIN dibs_finished AS f WHERE f.day = d.day AND f.id >= ?1
    LIMIT ?2
);
