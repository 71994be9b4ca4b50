"""What clients and workers share: `loop` runs the engine's coroutines, `hub` holds the parts of an app, `definition`
describes tasks, `coalesce` batches single writes, `payloads` keeps large ones in a blob store, `joining` uses
transactions of the user, `instrument` measures verbs, `breaker` spares a store that is away, `rescue` looks for lost
tasks, `queue_settings` writes those that code declares; `clock`, `ids` and `environment`.

`attempt`, `client` and `worker` import this package; it imports none of them. Invariants:

- An engine is only ever used on the loop of its `LoopRunner`.
- Concurrent single enqueues and settlements go to the store as one batch; each caller gets its own durable answer.
- The environment is read in `environment` and nowhere else.
"""
