-- Forget buckets. Takes queues, scopes, whose.
DELETE FROM dibs.buckets AS b USING unnest($1::text[], $2::text[], $3::text[]) AS idle (queue, scope, whose)
WHERE b.queue = idle.queue AND b.scope = idle.scope AND b.whose = idle.whose;
