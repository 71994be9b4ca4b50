-- Queues or streams have changed: everybody reads them again. Takes and returns nothing.
UPDATE dibs_store SET generation = generation + 1;
