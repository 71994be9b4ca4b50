-- One line of the audit log. Takes the instant and the entry (JSON text).
INSERT INTO dibs_audit (at, entry) VALUES (?, ?);
