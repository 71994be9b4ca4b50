-- Record a run of a chore. Takes its name and the record (JSON). The cursor stays.
INSERT INTO dibs.chores (name, record) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET record = excluded.record;
