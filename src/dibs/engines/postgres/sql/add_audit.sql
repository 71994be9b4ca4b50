-- One line of the audit log. Takes the instant and the entry (JSON).
INSERT INTO dibs.audit (at, entry) VALUES ($1, $2);
