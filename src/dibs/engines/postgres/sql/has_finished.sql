-- Whether tasks that ended on a day are in the last partition. Takes the day.
SELECT EXISTS (SELECT 1 FROM dibs.finished_other WHERE day = $1::int);
