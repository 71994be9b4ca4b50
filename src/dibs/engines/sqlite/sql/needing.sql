-- Which of some tasks wait for others. Takes ids (JSON array). Returns ids (JSON array). One seek in dibs_needed each.
SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
WHERE EXISTS (SELECT 1 FROM dibs_edges WHERE dependent = wanted.value AND open = 1);
