-- Token buckets. Takes the queue, scopes, whose. Returns scope, whose, level, at of those that have been used.
SELECT b.scope, b.whose, b.level, b.at
FROM unnest($2::text[], $3::text[]) AS w (scope, whose)
JOIN dibs.buckets AS b ON b.queue = $1 AND b.scope = w.scope AND b.whose = w.whose
WHERE b.level >= 0;
