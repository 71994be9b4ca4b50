"""Where tasks are kept: one folder per store. All engines have the verbs of `base`, in terms of `values`.

`open` chooses one by its URL: `sqlite`, `postgres`, `redis`, `memory`, which is SQLite without a file, `accelerated`,
which is PostgreSQL with Redis beside it (`accelerator` is what PostgreSQL knows of that), or `http`, which asks a Dibs
server. Stores import `dibs.core` and the modules here, never each other: `decisions` (what becomes of tasks, pure),
`port` (what a verb needs of a store), `verbs` (verbs written once, over the port), `store_transaction` (what the ports
of all stores share), `catalog` (their queues, tracks and subscribers), `statement_files` (how SQL files are read),
`user_connections` (from a session or connection of the user's to the driver's own),
`steps` (what goes on in the background), `events` (what subscribers ask for and get), `figures` (what is counted),
`topics` (what notifications are about), `wake` (notifications inside a process), `unreadable` (rows that can't be
read). Invariants:

- An engine declares what it can't do (`features`); it never does it differently.
- A write about a running task compares its lease number in the statement that writes.
- Every verb is bounded, whatever the store holds.
"""
