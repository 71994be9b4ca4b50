-- Where the next step of a chore goes on. Takes its name and the cursor (JSON) or NULL.
INSERT INTO dibs_chores (name, record, cursor) VALUES (?1, json_object('name', ?1), ?2)
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor;
