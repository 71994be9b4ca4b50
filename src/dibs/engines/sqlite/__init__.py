"""The SQLite engine: a file beside the program, shared by any number of processes on one machine.

`engine` chooses where verbs run; `verb_engine` has them. Most are `dibs.engines.verbs`, on the port of this store
(`snapshot`, `transaction`), which never suspends. Its own, as plain functions: `enqueueing`, `claiming` (the upkeep
before a claim), `settling` (complete and extend), `rescue`, `joining`, `doctor`. `chores`, `retention` and `reranking`
are what only this store repeats. `rows`, `row_decoder` and `statements` read and write tasks. `store` is one database
under a lock, also without a file, as `dibs.engines.memory` uses it; `file_store`, `connections`, `files`, `layout`,
`presence`, `notifier`, `errors` and `url` are the file. Statements are in `sql/`; the
layout is the sum of `migrations/`. Invariants:

- One writer connection per process and file, under a lock; every write is one `BEGIN IMMEDIATE` transaction.
- A hot statement is one step: batches go in and come out as one JSON value, because the driver gives up the GIL at
  every step and may wait for a busy thread each time.
- Counts change in the transaction that moves the tasks; nothing counts by scanning.
- Long work stops at a bound and continues as a follow-up, or with the next claim, which then answers so.
"""

from dibs.engines.sqlite.engine import SqliteEngine
from dibs.engines.sqlite.url import from_url

__all__ = ["SqliteEngine", "from_url"]
