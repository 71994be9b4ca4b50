-- Days that have finished tasks below an id. Takes the id. Returns a JSON array of days.
SELECT json_group_array(day) FROM dibs_days WHERE lowest < ?;
