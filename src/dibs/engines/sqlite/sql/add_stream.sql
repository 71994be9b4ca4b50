-- A new stream. Takes queue, name, requires (JSON array), lane, epoch. Returns its number.
INSERT INTO dibs_streams (queue, name, requires, lane, epoch) VALUES (?, ?, ?, ?, ?) RETURNING stream;
