-- Lock tasks, wherever they are, in order of id. Takes ids. Returns the columns of find.sql.
SELECT * FROM dibs.lock_tasks($1::uuid[]);
