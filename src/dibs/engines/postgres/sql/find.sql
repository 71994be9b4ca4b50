-- Tasks by id, wherever they are. Takes ids. Returns the columns that every statement about tasks gives. See the
-- function.
SELECT * FROM dibs.find_tasks($1::uuid[]);
