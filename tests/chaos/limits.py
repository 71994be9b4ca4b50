"""What the queues of a run are set to, and what the checker holds them to."""

MAX_CONCURRENT = 6
"""Tasks of the queue `limited` that may run at once; of one partition, one."""

RATE = 15.0
BURST = 15
"""Starts a second of the queue `paced`, and how many may come at once after a pause."""

DOOMED_RETRIES = 2
