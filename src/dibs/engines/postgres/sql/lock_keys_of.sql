-- The numbers of the locks that a store uses. Takes the names of its queues. Returns numbers.
SELECT hashtextextended('dibs.queues', 0) AS key
UNION ALL
SELECT hashtextextended('dibs.queue ' || q, 0) FROM unnest($1::text[]) AS q;
