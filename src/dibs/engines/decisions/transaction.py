"""The parts of an engine's transaction that decisions need."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from msgspec import Struct

from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.core.task import QueueState
from dibs.core.times import Instant
from dibs.engines.decisions.steps import Step
from dibs.engines.figures import Counter
from dibs.engines.topics import ended_topic, work_topic
from dibs.observe.events import EventType

FIRST_EPOCH = 1


class Queue(Struct, frozen=True):
    """A queue. Its `epoch` grows with each change of settings that ranks its tasks again."""

    name: str
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    epoch: int = FIRST_EPOCH

    @property
    def is_guarded(self) -> bool:
        """Whether moving its tasks may concern others: those of their partition, or their tenant."""
        return self.settings.per_partition is not None or self.settings.fair


class Transaction(Protocol):
    """What it knows of queues; and where counts, topics and follow-ups gather until it ends."""

    now: Instant
    topics: set[str]
    steps: deque[Step]

    def settings(self, queue: str) -> QueueSettings:
        """The settings of a queue; the defaults if it does not exist."""
        ...

    def settings_if_exists(self, queue: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        ...

    def make_queue(self, name: str) -> Queue:
        """The queue of this name, created if it does not exist."""
        ...

    def count_event(self, what: Counter, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        ...

    def count_event_of(self, what: Counter, task_id: str) -> None:
        """Count what happened to a task that was loaded."""
        ...

    def tell(self, queue: str, state: State) -> None:
        """Note the topics of a task that has come to `state`."""
        ...

    def emit(self, event: EventType, *, queue: str | None = None, worker: str | None = None, **details: object) -> None:
        """Append an event of a queue or a worker, if somebody wants it."""
        ...


def topics_of(queue: str, state: State, settings: QueueSettings) -> tuple[str, ...]:
    """The topics of a task that has come to `state`."""
    if state in WAITING:  # for later, too: a worker that sleeps until something falls due must learn of it
        return (work_topic(queue),)
    if settings.limits_starts:  # a slot may have come free
        return (ended_topic(queue), work_topic(queue))
    return (ended_topic(queue),)
