"""What clients and workers share: the loop that engines run on, the app's hub, task definitions, coalescing.

`client` and `worker` import this room; it knows neither. Invariants:

- An engine is only ever used on the loop of its `LoopRunner`.
- Concurrent single enqueues and settlements go to the store as one batch; each caller gets its own durable answer.
- The environment is read in `environment` and nowhere else.
"""
