"""One run of one task: in a worker, an executor process, a sandbox, or the user's own loop.

`execute`      makes the attempt: arguments, middleware, function, result
`context`      what a running task can know and say about itself, and its link to the run
`middleware`   the layers around every run
`payloads`     arguments made ready before the run, a large result stored after it
`results`      fills in the results of other tasks
`outcome`      from what the run returned or raised to the settlement; pure
`hooks`        what an app calls when a task has ended
`log_filter`   adds the facts of the running task to log records
`complete_in`  a task's own writes and its completion in one transaction

`client` and `worker` import this package, and it imports neither. Invariants: only `outcome` decides what becomes of a
task; an error of a task is a settlement, and never ends the process that runs it.
"""
