"""The SQLite engine: a file beside the program, shared by any number of processes on one machine.

`engine` is the async face and only chooses where verbs run; the verbs are plain functions on a `Transaction`, one
module per concern (`enqueueing`, `claiming`, `settling`, `admin`, `workflows`, `scheduling`, `reading`, `queueing`,
`working`, `housekeeping`, `care`). Behind them: `choosing` (claims), `ordering`, `heads` and `shares` (who is next),
`rooms` and `gating` (limits), `waiting` (edges), and `aftermath`, with which every write ends. They read and write;
what is not this engine's own to decide is decided in `dibs.engines.decisions`. Statements are files in `sql/`, the
layout is the sum of `migrations/`. Invariants:

- One writer connection per process and file, under a lock; every write is one `BEGIN IMMEDIATE` transaction.
- A hot statement is one step: batches go in and come out as one JSON value, because the driver gives up the GIL at
  every step and may wait for a busy thread each time.
- Counts change in the transaction that moves the tasks; nothing counts by scanning.
- What may be long is cut off at a bound and goes on as an errand, or with the next claim, which then says so.
"""

from dibs.engines.sqlite.engine import SqliteEngine
from dibs.engines.sqlite.url import from_url

__all__ = ["SqliteEngine", "from_url"]
