"""What verbs read and write by name, on tables and ordered sets: one function for each name of the port.

`names` gathers them; `tasks` (with keys, histories, days, counts and events), `graph` (edges and workflows), `limits`
(token buckets, partitions, shares) and `upkeep` (queues, leadership, chores, workers, schedules, steps) have them.
"""

from dibs.engines.redis.statements.graph import EDGE_ORDER, EDGES, MEMBERS, members_in
from dibs.engines.redis.statements.limits import BUCKETS, CLOCKS, PARTITIONS, SHARES, first_turns
from dibs.engines.redis.statements.names import ALL, READS, WRITES
from dibs.engines.redis.statements.tasks import DAYS, HISTORY, HISTORY_ORDER, KEYS
from dibs.engines.redis.statements.upkeep import QUEUES, TRACKS

__all__ = [
    "ALL",
    "BUCKETS",
    "CLOCKS",
    "DAYS",
    "EDGES",
    "EDGE_ORDER",
    "HISTORY",
    "HISTORY_ORDER",
    "KEYS",
    "MEMBERS",
    "PARTITIONS",
    "QUEUES",
    "READS",
    "SHARES",
    "TRACKS",
    "WRITES",
    "first_turns",
    "members_in",
]
