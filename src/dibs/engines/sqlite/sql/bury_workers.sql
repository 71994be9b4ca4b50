-- Mark workers dead. Takes ids (JSON array). Their byte is of no use any more.
UPDATE dibs_workers SET state = 'dead', presence = NULL WHERE id IN (SELECT value FROM json_each(?));
