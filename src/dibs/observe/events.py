"""The catalogue of events: what can happen to tasks, workers and queues, in the words that subscribers see.

Stored events are appended by the verbs that cause them, while somebody subscribes. Computed ones are made for each
subscriber from the store's figures, and never stored.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["COMPUTED", "FAMILIES", "MEANINGS", "EventType", "family_of"]


class EventType(StrEnum):
    """What happened. The part before the dot is the family."""

    TASK_SUBMITTED = "task.submitted"
    TASK_STARTED = "task.started"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_RETRYING = "task.retrying"
    TASK_DEAD = "task.dead"
    TASK_CANCELLED = "task.cancelled"
    TASK_CANCEL_REQUESTED = "task.cancel_requested"
    TASK_LOST = "task.lost"
    TASK_RELEASED = "task.released"
    TASK_SCHEDULED = "task.scheduled"
    TASK_PROMOTED = "task.promoted"
    TASK_UNBLOCKED = "task.unblocked"
    TASK_EDITED = "task.edited"
    TASK_REPLAYED = "task.replayed"
    TASK_PURGED = "task.purged"
    WORKER_JOINED = "worker.joined"
    WORKER_LEFT = "worker.left"
    WORKER_DEAD = "worker.dead"
    WORKER_PAUSED = "worker.paused"
    WORKER_RESUMED = "worker.resumed"
    WORKER_DRAINING = "worker.draining"
    QUEUE_CHANGED = "queue.changed"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    QUEUE_DRAINING = "queue.draining"
    QUEUE_DELETED = "queue.deleted"
    QUEUE_DEPTH = "queue.depth"
    SYSTEM_METRICS = "system.metrics"


COMPUTED = frozenset({EventType.QUEUE_DEPTH, EventType.SYSTEM_METRICS})

MEANINGS = {
    EventType.TASK_SUBMITTED: "it was enqueued; `state` says whether it is pending, scheduled or blocked",
    EventType.TASK_STARTED: "a worker has claimed it",
    EventType.TASK_COMPLETED: "its run completed, after `duration_ms`",
    EventType.TASK_FAILED: "an attempt failed or timed out: `error_type`, `error`, `attempt`",
    EventType.TASK_RETRYING: "it runs again, at `due_at`",
    EventType.TASK_DEAD: "it has failed for good: `reason`, and the last `error_type` and `error`",
    EventType.TASK_CANCELLED: "it was cancelled: `reason` (user, expired, dependency, queue)",
    EventType.TASK_CANCEL_REQUESTED: "it is running and was asked to stop",
    EventType.TASK_LOST: "its worker was lost",
    EventType.TASK_RELEASED: "its worker handed it back: it is pending again",
    EventType.TASK_SCHEDULED: "it was put off, to `due_at`",
    EventType.TASK_PROMOTED: "it was due, and is pending now; or it has waited long enough for the next `tier`",
    EventType.TASK_UNBLOCKED: "it waits for no other task any more",
    EventType.TASK_EDITED: "its priority, times or metadata were changed, or its content was replaced",
    EventType.TASK_REPLAYED: "it was dead, or cancelled with its workflow, and runs again",
    EventType.TASK_PURGED: "it was deleted",
    EventType.WORKER_JOINED: "a worker's first heartbeat",
    EventType.WORKER_LEFT: "a worker has shut down",
    EventType.WORKER_DEAD: "a worker was found dead",
    EventType.WORKER_PAUSED: "a worker was told to pause",
    EventType.WORKER_RESUMED: "a worker was told to resume",
    EventType.WORKER_DRAINING: "a worker was told to drain",
    EventType.QUEUE_CHANGED: "a queue has other settings",
    EventType.QUEUE_PAUSED: "a queue was paused",
    EventType.QUEUE_RESUMED: "a queue is active again",
    EventType.QUEUE_DRAINING: "a queue drains",
    EventType.QUEUE_DELETED: "a queue was deleted",
    EventType.QUEUE_DEPTH: "how many tasks a queue has by state, when that has changed",
    EventType.SYSTEM_METRICS: "workers, slots and tasks of the whole store, every few seconds",
}
"""What each means, for the reference page."""


def family_of(event: EventType) -> str:
    return event.partition(".")[0]


FAMILIES = tuple(dict.fromkeys(map(family_of, EventType)))
