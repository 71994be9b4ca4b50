"""The worker: claim → run → settle.

`worker`      the worker as applications see it; `settings` and `status` are what it takes and gives
`main`        a worker as the main program of a process; `supervisor` runs several
`session`     one life of a worker: builds the parts and connects them; `shutdown` ends it
`service`     the lifecycle of parts that run on the loop
`fetcher`     claims tasks; `buffer` orders those that wait for a slot
`dispatcher`  takes a run from its claim to its settlement; `run` is the run, `slots` the capacity
`suspects`    keeps tasks that may kill their worker apart
`stopper`     stops runs
`settler`     takes settlements to the store; `counters`, `minute_stats` and `run_figures` count them, `run_log`
              logs them
`heartbeat`   extends leases from its own thread; `watchdog` names the task that blocks the loop
`health`      whether the store answers, and when to ask again; `liveness` is the worker's own health
`executors`   where tasks run
`maintenance` rescue, leadership, schedules, blobs; `caretaker` does it for a server, which runs no tasks

The CLI, the server and `Dibs.worker()` import this package; it imports neither `client` nor `cli`. Invariants:

- The next claim never waits for a settlement, and a lease never waits for the event loop.
- A run is settled at most once, and stays leased until the store has answered.
- An error of a task ends its attempt, never the worker.
"""

from dibs.attempt.context import Context
from dibs.attempt.hooks import TaskEnd
from dibs.attempt.middleware import Middleware, Next
from dibs.worker.settings import WorkerSettings
from dibs.worker.status import ExitCode, ExitReport, WorkerStats
from dibs.worker.worker import Worker

__all__ = [
    "Context",
    "ExitCode",
    "ExitReport",
    "Middleware",
    "Next",
    "TaskEnd",
    "Worker",
    "WorkerSettings",
    "WorkerStats",
]
