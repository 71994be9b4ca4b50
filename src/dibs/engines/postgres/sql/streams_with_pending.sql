-- Which of some streams have pending tasks, gated ones included. Takes streams. Returns streams. Two seeks each.
SELECT s.stream FROM unnest($1::int[]) AS s (stream)
WHERE EXISTS (SELECT 1 FROM dibs.tasks AS t WHERE t.stream = s.stream AND t.state = 'pending' AND t.gate < 2)
   OR EXISTS (SELECT 1 FROM dibs.tasks AS t WHERE t.stream = s.stream AND t.state = 'pending' AND t.gate = 2);
