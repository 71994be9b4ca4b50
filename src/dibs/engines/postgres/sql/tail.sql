-- How many changes of counts wait to be folded. Takes where to stop counting. Returns a number.
SELECT count(*) FROM (SELECT 1 FROM dibs.deltas WHERE xid >= (SELECT dibs.folded_until()) LIMIT $1::int) AS waiting;
