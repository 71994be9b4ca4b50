"""The rules of Dibs as pure functions on values: no clock, no randomness, no I/O.

Everyone may import this room; it imports only `dibs.errors`. Invariants:

- An instant or a duration is an integer of microseconds (`times`).
- What may happen to a task is `states.TRANSITIONS`; what goes first is `priority.rank`.
- A decision is a value made here; making it durable is an engine's job.
"""
