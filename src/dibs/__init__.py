"""Dibs, a priority task queue for Python: first dibs to the most urgent task.

The packages, from the inside out; imports point inward only:

    errors      the whole error tree; beside it `version`
    core        the rules as pure functions: states, ranks, retries, limits, codec
    terminal    what people and scripts see of a command
    observe     what Dibs counts and logs about itself
    blobs       where large payloads are kept: a directory, S3
    simulation  the rules in virtual time
    engines     where tasks are kept: memory, sqlite, postgres, redis, http; one seam, `engines.base`
    runtime     the loop, the app's hub, coalescing
    attempt     one run of one task
    worker      fetch, run, settle
    client      what application code uses; it and the worker don't know each other
    exporters   metrics for monitoring systems
    testing     for users' tests and for ours
    integrations  what makes it fit into other libraries: Django, Prometheus
    demo        `dibs demo`: a run that checks its own promises
    benchmark   `dibs bench`: how fast it is here; both start `worker_processes`
    server      `dibs serve`: REST, events, remote workers
    cli         the `dibs` command
"""

from dibs.attempt.context import Context
from dibs.client.app import Dibs
from dibs.client.flow import chain, group
from dibs.client.handle import Handle
from dibs.client.take import take
from dibs.client.task import Call, Task
from dibs.client.tasks import Filter
from dibs.core.retry import TRANSIENT
from dibs.core.states import State
from dibs.errors import DibsError, Permanent, Retry
from dibs.version import __version__

__all__ = [
    "TRANSIENT",
    "Call",
    "Context",
    "Dibs",
    "DibsError",
    "Filter",
    "Handle",
    "Permanent",
    "Retry",
    "State",
    "Task",
    "__version__",
    "chain",
    "group",
    "take",
]
