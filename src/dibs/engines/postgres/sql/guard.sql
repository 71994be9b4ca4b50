-- From now on the moves of these partitions' tasks concern others. Takes partitions with their queue's name in front.
UPDATE dibs.tasks SET gate = 1 WHERE partition = ANY ($1::text[]) AND gate = 0;
