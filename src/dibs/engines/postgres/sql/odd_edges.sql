-- Edges whose rule this version does not know. Takes the rules that it does. Returns dependent, rule. Scans all edges; only
-- for the doctor.
SELECT DISTINCT dependent, rule FROM dibs.edges WHERE rule <> ALL ($1::text[]) LIMIT 10000;
