"""The Redis engine: a server in memory for any number of machines, Redis 6.2 and later or Valkey.

Most verbs are `dibs.engines.verbs`, on the port of this store (`transaction`). Scripts of the server are in `lua/`;
`docs/design/redis.md` says what each key holds. The modules:

- Way in: `engine` (how verbs run), `url` (from a URL to an engine).
- Connections: `connection` (one, until it breaks), `connecting` (which server takes writes: one host, sentinels, a
  cluster), `client` (one connection for all calls, made again when it breaks), `scripts` (loads Lua), `errors` (from
  the server's errors to ours), `layout` (whether a server can be a store, and what a new one begins with).
- What is stored, and how: `keys` (names), `codec` (columns as bytes that sort), `rows` (tasks), `tables` (everything
  else: rows with indexes).
- What verbs work on: `store` (runs and repeats transactions, remembers the catalog), `snapshot` (reads), `draft` (what
  was read and what is to be written), `transaction` (a snapshot with a draft), `statements` (named reads and writes).
- enqueue: `enqueueing` (one script, for tasks that need no decision).
- claim: `claiming` (by ranks alone in one script, else decided here and compared).
- Running tasks: `settling` (complete, extend, rescue), `presence` (which workers are alive).
- Upkeep that only this store has: `chores`; `doctor` (what the server promises, reads all rows).
- Waking: `notifier` (SUBSCRIBE and PUBLISH).

Invariants:

- All keys have one hash tag. A script is given the key of the store, and derives the others from it.
- Nothing is locked. What a verb has decided is written by one script, if all that it has read is still so; otherwise
  nothing is written, and the verb runs again.
- A script that writes begins with a command that a full server refuses: nothing is done by halves.
- Members of ordered sets have the score 0 and are ordered by their bytes. In the one set of running tasks the score is
  the end of the lease.
- A task's value is not written by claims and completions; its lease number is compared by every write about its run.
"""

from dibs.engines.redis.engine import RedisEngine
from dibs.engines.redis.url import from_url

__all__ = ["RedisEngine", "from_url"]
