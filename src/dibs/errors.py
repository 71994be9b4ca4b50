"""Every error that Dibs raises, in one tree.

    DibsError
    ├── UsageError (also ValueError)      the call was wrong; nothing was written
    │   ├── InvalidOption                 an option's name or value
    │   ├── InvalidArguments              the arguments don't fit the task's signature, or JSON can't carry them
    │   ├── PayloadTooLarge               arguments or a result over the inline limit, and no blob store for them
    │   ├── DependencyCycle               tasks would wait for each other for ever
    │   └── WrongThread                   a blocking call where it would deadlock
    ├── Refused                           the call was right, but the store refused; nothing was written
    │   ├── QueueFull                     max_depth reached; carries retry_after
    │   ├── RateLimited                   this client enqueues too fast; carries retry_after
    │   ├── QueueDraining                 the queue takes no new tasks
    │   ├── QueueNotEmpty                 the queue has tasks; deleting it needs force
    │   ├── DuplicateTask                 the id that the caller chose belongs to another task
    │   ├── IdempotencyConflict           a task with other arguments holds the key
    │   ├── UnknownTask                   no task has this id
    │   ├── UnknownQueue                  no queue has this name
    │   ├── UnknownWorker                 no worker has this id
    │   ├── UnknownSchedule               no schedule has this name
    │   ├── UnknownWorkflow               no workflow has this id
    │   ├── UnknownStep                   no background step has this id
    │   ├── NotAllowed                    the token is unknown, or may not do this
    │   ├── Unreadable                    this version can't read what is stored: it stays as it is
    │   └── WrongState                    the task, queue or worker is not in a state that allows this
    ├── TaskError                         the end of a task whose result was awaited
    │   ├── TaskFailed                    it is dead; carries the remote traceback
    │   ├── TaskCancelled                 it was cancelled; carries the reason
    │   ├── WrongResult                   its result is not of the type that the task declares
    │   └── ResultGone                    it ended so long ago that its record has been pruned
    ├── StoreError                        the store did not do what was asked
    │   ├── StoreBusy                     others held a lock for longer than the limit; try again
    │   ├── StoreUnavailable              can't be reached, is read-only or full, or its file was removed
    │   │   └── BlobStoreUnavailable      the same for the blob store, or this app has none
    │   ├── StoreCorrupt                  failed its integrity check
    │   │   └── BlobCorrupt               a large payload is not what was written
    │   ├── BlobLost                      a large payload is no longer in the blob store
    │   ├── StoreMismatch                 not a Dibs store, or one written by a newer Dibs
    │   └── StoreMissing                  there is no store at this place, and none was to be created
    ├── LeaseLost                         another worker has this task now; stop
    └── Closed                            the app was closed while the call was waiting

A task raises two more to say what should happen to it: `Retry` and `Permanent`.
"""

from __future__ import annotations

__all__ = [
    "BlobCorrupt",
    "BlobLost",
    "BlobStoreUnavailable",
    "Closed",
    "DependencyCycle",
    "DibsError",
    "DuplicateTask",
    "IdempotencyConflict",
    "InvalidArguments",
    "InvalidOption",
    "LeaseLost",
    "NotAllowed",
    "PayloadTooLarge",
    "Permanent",
    "QueueDraining",
    "QueueFull",
    "QueueNotEmpty",
    "RateLimited",
    "Refused",
    "ResultGone",
    "Retry",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreMismatch",
    "StoreMissing",
    "StoreUnavailable",
    "TaskCancelled",
    "TaskError",
    "TaskFailed",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownStep",
    "UnknownTask",
    "UnknownWorker",
    "UnknownWorkflow",
    "Unreadable",
    "UsageError",
    "WrongResult",
    "WrongState",
    "WrongThread",
]


class DibsError(Exception):
    """Everything that Dibs raises on purpose."""


class UsageError(DibsError, ValueError):
    """The call was wrong; nothing was written."""


class InvalidOption(UsageError):
    """An option's name or value can't be used."""


class InvalidArguments(UsageError, TypeError):
    """The arguments don't fit the task's signature, or JSON can't carry them."""


class PayloadTooLarge(UsageError):
    """Arguments or a result over the inline limit, and no blob store to keep them in."""


class DependencyCycle(UsageError):
    """Tasks would wait for each other for ever; `ids` is the cycle, with the first one repeated at the end."""

    def __init__(self, message: str, *, ids: list[str]) -> None:
        super().__init__(message)
        self.ids = ids


class WrongThread(UsageError, RuntimeError):
    """A blocking call where it would wait for itself."""


class Refused(DibsError):
    """The call was right, but the store refused; nothing was written."""


class QueueFull(Refused):
    """The queue holds `max_depth` tasks; `retry_after` says in how many seconds room is expected."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(Refused):
    """The client enqueues faster than the queue's `enqueue_rate`; it may try again in `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueDraining(Refused):
    """The queue takes no new tasks."""


class QueueNotEmpty(Refused):
    """The queue has tasks; deleting it needs force."""


class DuplicateTask(Refused):
    """The id that the caller chose belongs to another task."""


class IdempotencyConflict(Refused):
    """A task with other arguments holds the key."""

    def __init__(self, message: str, *, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class UnknownTask(Refused, LookupError):
    """No task has this id (it may have been pruned)."""


class UnknownQueue(Refused, LookupError):
    """No queue has this name."""


class UnknownWorker(Refused, LookupError):
    """No worker has this id."""


class UnknownSchedule(Refused, LookupError):
    """No schedule has this name."""


class UnknownStep(Refused, LookupError):
    """No background step has this id. They are kept for 7 days after their end."""


class UnknownWorkflow(Refused, LookupError):
    """No workflow has this id."""


class NotAllowed(Refused):
    """The server does not know the token, or the token may not do this."""


class Unreadable(Refused):
    """The stored task, queue or schedule was damaged or written by a newer Dibs; it stays as it is."""


class WrongState(Refused):
    """The thing is not in a state that allows this."""


class TaskError(DibsError):
    """The end of a task whose result was awaited."""

    def __init__(self, message: str, *, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskFailed(TaskError):
    """The task is dead. `error_type`, `error_message` and `traceback` say what it last raised."""

    def __init__(
        self, message: str, *, task_id: str, reason: str, error_type: str, error_message: str, traceback: str
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.reason = reason
        self.error_type = error_type
        self.error_message = error_message
        self.traceback = traceback


class TaskCancelled(TaskError):
    """The task was cancelled."""

    def __init__(self, message: str, *, task_id: str, reason: str) -> None:
        super().__init__(message, task_id=task_id)
        self.reason = reason


class WrongResult(TaskError):
    """The result is not of the type that the task's return annotation declares.

    A run that returns such a value fails its task for good: another attempt would return the same.
    """


class ResultGone(TaskError):
    """The task ended so long ago that its record has been pruned."""


class StoreError(DibsError):
    """The store did not do what was asked."""


class StoreBusy(StoreError):
    """Others held a lock for longer than the limit; trying again is safe."""


class StoreUnavailable(StoreError):
    """The store can't be reached, is read-only or full, or its file was removed or replaced."""


class BlobStoreUnavailable(StoreUnavailable):
    """The store of large payloads can't be reached, is read-only or full, or this app has none."""


class StoreCorrupt(StoreError):
    """The store failed its integrity check."""


class BlobCorrupt(StoreCorrupt):
    """A large payload is not what was written: its size or its hash differs."""


class BlobLost(StoreError, LookupError):
    """A large payload is no longer in the blob store: trying again won't bring it back."""


class StoreMismatch(StoreError):
    """Not a Dibs store, or one written by a newer Dibs."""


class StoreMissing(StoreError):
    """There is no store at this place, and none was to be created: commands that only look create nothing."""


class LeaseLost(DibsError):
    """Another worker has this task now, or it has ended: stop, nothing more will be recorded."""


class Closed(DibsError):
    """The app was closed."""


class Retry(DibsError):
    """Raised by a task: this attempt failed; run it again, after `after` seconds if given."""

    def __init__(self, message: str = "the task asked to be retried", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Permanent(DibsError):
    """Raised by a task: no attempt can succeed; don't retry."""
