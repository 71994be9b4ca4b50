-- Remember that nothing is left to prune. Takes the day and the queues that were pruned (JSON array).
UPDATE dibs_days SET pruned = ?2 WHERE day = ?1;
