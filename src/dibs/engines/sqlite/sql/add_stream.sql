-- A new stream. Takes queue, name, requires (JSON array), lane, epoch, fair. Returns its number.
INSERT INTO dibs_streams (queue, name, requires, lane, epoch, fair) VALUES (?, ?, ?, ?, ?, ?) RETURNING stream;
