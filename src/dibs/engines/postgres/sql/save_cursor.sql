-- Where the next step of a chore goes on. Takes its name and the cursor (JSON) or NULL.
INSERT INTO dibs.chores (name, record, cursor)
VALUES ($1, convert_to(json_build_object('name', $1::text)::text, 'UTF8'), $2)
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor;
