"""The PostgreSQL engine: one database for any number of machines.

`engine` is the async face; the verbs are coroutines on a `Transaction`, one module per concern (`enqueueing`,
`claiming`, `settling`, `waiting`, `workflows`, `admin`, `reading`, `queueing`, `working`, `housekeeping`,
`scheduling`, `care`). They read and write; what is not this engine's own to decide is decided in
`dibs.engines.decisions`. Statements are files in `sql/`; what one statement can't do right is a function in
`functions/`; the layout is the sum of `migrations/`. Invariants:

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
