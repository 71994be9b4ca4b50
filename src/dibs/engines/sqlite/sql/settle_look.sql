-- What a settlement must know first. Takes nothing. Returns the generation, and 1 if any task waits for another. One seek
-- in dibs_needed: where nobody waits, nothing has to be asked about each task.
SELECT generation, EXISTS (SELECT 1 FROM dibs_edges INDEXED BY dibs_needed WHERE open = 1) FROM dibs_store;
