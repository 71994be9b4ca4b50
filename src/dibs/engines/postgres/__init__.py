"""The PostgreSQL engine: one database for any number of machines.

The verbs are coroutines on a `Transaction` or a `Snapshot`. What is not this engine's own to decide is decided in
`dibs.engines.decisions`. Statements are files in `sql/`, functions of the database are in `functions/`, and the layout
is the sum of `migrations/`. The modules:

- Way in: `engine` (the async face), `url` (from a URL to an engine), `user_connections` and `joining` (verbs inside a
  transaction of the user's own).
- Connections: `pool` (lends them), `store` (runs and repeats transactions), `transaction` (what a verb works on),
  `pgbouncer` (poolers in between), `replica` (the server of `read_url`), `errors` (from the driver's errors to ours),
  `driver_internals` (private attributes of asyncpg and asyncio), `statements` (loads SQL), `layout` (migrations).
- What all verbs use: `catalog` (queues and tracks), `rows` (from columns to records), `records` (tasks that a
  transaction changes), `follow_ups` (how a write ends), `dependencies` (tasks that wait for others).
- enqueue: `enqueue_fast` (one statement), `enqueueing` (decided item by item), `enqueue_rows` (columns of new tasks).
- claim: `claiming` (by ranks alone), `claim_limited` (with limits, shares or reserved slots), `choosing` (which tasks),
  `head_pages` (the heads of the index), `headroom` (what limits allow), `partitions` (heads of limited partitions),
  `index_bloat` (where to start reading).
- Running tasks: `settling` (settle, extend, rescue), `workers` (signs of life), `presence` (which workers are alive).
- All else: `admin`, `queues`, `schedules`, `workflows`, `reading` (history, counts, positions), `searching`.
- Upkeep: `chores` (what a leader does), `retention` (deletes what is over), `reranking` (after new settings), `doctor`
  (reads all rows), `server_findings` (the server's own state).
- Waking: `notifier` (LISTEN and NOTIFY), `notify_rate` (fewer messages).

Invariants:

- The hot verbs (enqueue, claim, complete, extend) are one round trip. All else locks the rows it changes in order of
  id, decides with `dibs.core.moves`, and writes them back, in one transaction.
- Every write holds the lock on the queues' settings (shared; changing them takes it alone), so what is known of a queue
  holds until the write is committed.
- Nothing depends on the session: no prepared names, temporary tables or session locks are needed to be right.
- Counts are appended with every move and folded by a chore; nothing counts by scanning, no row is hot.
"""

from dibs.engines.postgres.engine import PostgresEngine
from dibs.engines.postgres.url import from_url

__all__ = ["PostgresEngine", "from_url"]
