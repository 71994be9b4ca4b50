-- Where a chore goes on. Takes its name. Returns the cursor (JSON).
SELECT cursor FROM dibs.chores WHERE name = $1;
