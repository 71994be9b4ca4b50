"""The rules of Dibs as pure functions on values: no clock, no randomness, no I/O.

Every package may import this one; it imports only `dibs.errors`. Values: `times` (instants and durations), `ids`,
`task` (what passes through the engine seam), `states`, `settings` of queues, `recurrence` and `cron`, `reference` to
blobs. Checks and texts: `options` checks arguments, `codec` encodes them and results, `results` fills in those of other
tasks, `humanize` writes durations. Rules: `moves` (what an event makes of a task), `priority`, `fairness`, `limits`,
`retry`, `lease`, `graph` (dependencies), `schedules`, `histogram`, `backpressure` (when a full queue has room),
`chores` (when one is late), and `policy` (bounds that all engines share). Invariants:

- An instant or a duration is an integer of microseconds (`times`).
- `states.TRANSITIONS` lists all that may happen to a task; `priority.rank` orders tasks.
- Decisions are values made here; engines make them durable.
"""
