-- Others learn that queues or streams have changed. Takes nothing.
UPDATE dibs.store SET generation = generation + 1;
