-- Which transaction wrote a change of counts (0: one before this step), so that what has been added up can be passed
-- over although its rows can't be cleaned away yet.
ALTER TABLE dibs.deltas ADD COLUMN xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE dibs.deltas ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
CREATE INDEX unfolded ON dibs.deltas (xid);
-- Of the chore that adds up counts: all changes by transactions before `folded_until` have been; `folded_by` said so.
-- If the row was last written by another one, it says nothing: the store may have been restored from a dump, on a
-- server that counts its transactions from elsewhere.
ALTER TABLE dibs.chores ADD COLUMN folded_until xid8, ADD COLUMN folded_by xid8;
