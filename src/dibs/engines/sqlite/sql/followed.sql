-- Which of some tasks others wait for. Takes ids (JSON array). Returns ids (JSON array). One seek in dibs_followed each.
SELECT json_group_array(wanted.value) FROM json_each(?) AS wanted
WHERE EXISTS (SELECT 1 FROM dibs_edges WHERE prerequisite = wanted.value AND open = 1);
