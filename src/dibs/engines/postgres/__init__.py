"""The PostgreSQL engine: one database for any number of machines.

Most verbs are `dibs.engines.verbs`, on the port of this store (`transaction`). Statements are in `sql/`, functions of
the database in `functions/`; the layout is the sum of `migrations/`. The modules:

- Way in: `engine` (how verbs run), `url` (from a URL to an engine), `user_connections` and `joining` (verbs inside a
  transaction of the user's own).
- Connections: `pool` (lends them), `store` (runs and repeats transactions), `transaction` (what a verb works on),
  `pgbouncer` (poolers in between), `replica` (a second server, for lists and statistics), `errors` (from the driver's
  errors to ours), `driver_internals` (private attributes of asyncpg and asyncio), `statements` (loads SQL), `layout`
  (migrations).
- What all verbs use: `catalog` (queues and tracks), `rows` (from columns to records), `steps` (what a
  write leaves to others).
- enqueue: `enqueueing` (one statement, for tasks that need no decision), `tokens` (limits of clients that are kept
  beside the store).
- claim: `claiming` (in one statement, else with the queues locked), `claim_limits` (which claims one statement can do,
  and what it must know of limits and shares), `index_bloat` (where to start reading).
- Running tasks: `settling` (complete, extend, rescue), `presence` (which workers are alive).
- Upkeep that only this store has: `chores`, `retention`, `reranking`; `doctor` (reads all rows), `server_findings` (the
  server's own state).
- Waking: `notifier` (LISTEN and NOTIFY), `notify_rate` (fewer messages). `session_log` logs its sessions and those of
  `presence`.

Invariants:

- The hot verbs (enqueue, claim, complete, extend) are one round trip. The others lock the rows they change in order of
  id, decide with `dibs.core.moves`, and write them back, in one transaction.
- Every write holds the lock on the queues' settings (shared; a change of settings takes it exclusively), so what is
  known of a queue holds until the commit.
- Correctness never depends on the session: no prepared names, temporary tables or session locks.
- Counts are appended with every move and folded by a chore; nothing counts by scanning, no row is hot.
"""

from dibs.engines.postgres.engine import PostgresEngine
from dibs.engines.postgres.url import from_url

__all__ = ["PostgresEngine", "from_url"]
