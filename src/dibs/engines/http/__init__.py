"""The HTTP engine: a store behind Dibs servers, for producers and workers that must not touch it themselves.

`engine` is the engine, whose verbs are made from `protocol`: the verbs of the seam as requests, from its type hints.
`connection` sends requests to one of several servers, `notifier` listens to one WebSocket, `problems` turns errors into
documents and back, and `url` finds the servers. `dibs.server` imports `protocol` and `problems`, which need no client.

Invariants:

- Every verb is safe to repeat, so a request without an answer is sent again, to the next server.
- `now` is never on the wire, nor are the verbs of `Keeping`: servers keep their store.
"""
