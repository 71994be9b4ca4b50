"""What can be asked over REST, one module for each kind of thing: each is a table of routes and their handlers.

`tasks`, `bulk` (acts on all that match), `queues`, `dead`, `workflows`, `schedules`, `workers` (those that run tasks,
as operators see them), `consuming` (the protocol of workers in any language, with `polling`), `older` (workers of an
older shape), `figures` (statistics), `store` (audit log, steps, chores, health).

Handlers use the public API of the app that `Exchange.app` is, through which a caller can do only what it may.
"""
