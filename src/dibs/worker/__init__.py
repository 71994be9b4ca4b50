"""The worker: fetch → run → settle.

`worker.Worker` is what others see, `session` holds its parts together: `fetch` claims, `running` runs (on the loop, in
`threads`, in `processes`), `reports` settles, `heart` keeps leases alive from its own thread, `housekeeping` rescues
and leads. `outcome` and `minutes` also serve people who bring their own loop. Clients, the server and the CLI import
this room; it knows none of them. Invariants:

- The next claim never waits for a settlement, and a lease never waits for the event loop.
- A run is settled at most once, and stays leased until the store has answered.
- Whatever a task raises ends its attempt, never the worker.
"""

from dibs.attempt.context import Context
from dibs.attempt.middleware import Middleware, Next
from dibs.worker.settings import WorkerSettings
from dibs.worker.status import ExitCode, ExitReport, WorkerStats
from dibs.worker.worker import Worker

__all__ = ["Context", "ExitCode", "ExitReport", "Middleware", "Next", "Worker", "WorkerSettings", "WorkerStats"]
