"""Which events a change is: from a task as it was and as it is, to what subscribers are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from dibs.core.priority import tiers_climbed
from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.core.task import Failure, QueueState, TaskRecord, WorkerState
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.events import Watch
from dibs.observe.events import EventType

__all__ = ["QUEUE_EVENTS", "WORKER_EVENTS", "TaskEvent", "is_wanted", "task_events", "wanted_tracks"]

ALL_TRACKS = [0]
"""No track has this number: events of all tracks are wanted."""
MESSAGE_LIMIT = 200

QUEUE_EVENTS = {
    QueueState.ACTIVE: EventType.QUEUE_RESUMED,
    QueueState.PAUSED: EventType.QUEUE_PAUSED,
    QueueState.DRAINING: EventType.QUEUE_DRAINING,
}
WORKER_EVENTS = {
    WorkerState.ACTIVE: EventType.WORKER_RESUMED,
    WorkerState.PAUSED: EventType.WORKER_PAUSED,
    WorkerState.DRAINING: EventType.WORKER_DRAINING,
}


def is_wanted(watches: Iterable[Watch], event: EventType, queue: str | None, now: Instant) -> bool:
    return any(watch.until > now and watch.wants(event, queue) for watch in watches)


def wanted_tracks(watches: Iterable[Watch], event: EventType, tracks: Iterable[Track]) -> list[int] | None:
    """Of which of some tracks an event is wanted: `ALL_TRACKS`, or their numbers; None if of none."""
    wanting = [watch for watch in watches if watch.wants_type(event)]
    if not wanting:
        return None
    if not all(watch.queues for watch in wanting):
        return ALL_TRACKS
    queues = {queue for watch in wanting for queue in watch.queues}
    return [track.number for track in tracks if track.queue in queues] or None


class TaskEvent(Struct, frozen=True):
    """An event of one task."""

    type: EventType
    details: dict[str, Any] = {}
    worker: str | None = None
    took: Duration | None = None


def task_events(
    old: TaskRecord | None, new: TaskRecord | None, settings: QueueSettings, now: Instant
) -> Iterator[TaskEvent]:
    """What has happened to a task; no `old`: it is new, no `new`: it was deleted."""
    if new is None:
        yield TaskEvent(EventType.TASK_PURGED)
    elif old is None:
        yield TaskEvent(EventType.TASK_SUBMITTED, where(new))
        yield from endings(new)
    elif old.state is new.state:
        yield from unmoved(old, new, settings)
    else:
        if old.state is State.RUNNING:
            yield from run_events(old, new, now)
        yield from arrivals(old, new)
        yield from endings(new)


def unmoved(old: TaskRecord, new: TaskRecord, settings: QueueSettings) -> Iterator[TaskEvent]:
    if new.cancel_reason is not None and old.cancel_reason is None:
        yield TaskEvent(EventType.TASK_CANCEL_REQUESTED, {"note": new.cancel_reason}, new.worker)
    elif new.state in WAITING and (old.spec, old.args, old.due_at) != (new.spec, new.args, new.due_at):
        yield TaskEvent(EventType.TASK_EDITED, {"priority": new.spec.priority, **where(new)})
    elif old.urgency == new.urgency and (climbed := tiers_climbed(settings, old.rank_offset, new.rank_offset)):
        yield TaskEvent(EventType.TASK_PROMOTED, {"tier": climbed[-1]})


def run_events(old: TaskRecord, new: TaskRecord, now: Instant) -> Iterator[TaskEvent]:
    """How a run ended."""
    took = None if old.started_at is None else now - old.started_at
    if new.losses > old.losses:
        yield TaskEvent(EventType.TASK_LOST, {"losses": new.losses}, old.worker, took)
    elif new.attempts > old.attempts:
        yield TaskEvent(EventType.TASK_FAILED, {"attempt": new.attempts, **error(new.failure)}, old.worker, took)
    elif new.state is State.PENDING:
        yield TaskEvent(EventType.TASK_RELEASED, {}, old.worker, took)
    elif new.state is State.COMPLETED:
        yield TaskEvent(EventType.TASK_COMPLETED, {}, old.worker, took)


def arrivals(old: TaskRecord, new: TaskRecord) -> Iterator[TaskEvent]:
    """A task that waits in another state now."""
    if new.state is State.RETRYING:
        yield TaskEvent(EventType.TASK_RETRYING, where(new))
    elif old.state in (State.DEAD, State.CANCELLED):
        yield TaskEvent(EventType.TASK_REPLAYED, where(new))
    elif old.state is State.BLOCKED and new.state in WAITING:
        yield TaskEvent(EventType.TASK_UNBLOCKED, where(new))
    elif new.state is State.SCHEDULED:
        yield TaskEvent(EventType.TASK_SCHEDULED, where(new))
    elif new.state is State.PENDING and old.state in WAITING:
        yield TaskEvent(EventType.TASK_PROMOTED)


def endings(new: TaskRecord) -> Iterator[TaskEvent]:
    if new.state is State.DEAD:
        yield TaskEvent(EventType.TASK_DEAD, {"reason": new.reason, **error(new.failure)}, new.worker)
    elif new.state is State.CANCELLED:
        note = {"note": new.note} if new.note else {}
        yield TaskEvent(EventType.TASK_CANCELLED, {"reason": new.reason, **note}, new.worker)


def where(record: TaskRecord) -> dict[str, Any]:
    due = {} if record.due_at is None else {"due_at": record.due_at}
    return {"state": record.state, **due}


def error(failure: Failure | None) -> dict[str, Any]:
    return {} if failure is None else {"error_type": failure.type, "error": failure.message[:MESSAGE_LIMIT]}
