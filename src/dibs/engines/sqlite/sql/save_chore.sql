-- Record a run of a chore. Takes its name and the record (JSON). The cursor stays.
INSERT INTO dibs_chores (name, record) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = excluded.record;
